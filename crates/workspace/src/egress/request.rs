//! What a client asks of a proxy.

/// A request, and what of it goes on to the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub host: String,
    pub port: u16,
    /// The head as the server expects it; nothing for a tunnel.
    pub forwarded: Option<Vec<u8>>,
    /// What the client sent behind the head.
    pub body_begun: Vec<u8>,
}

const HTTP_PORT: u16 = 80;

impl Request {
    /// None if it is not a request to a proxy.
    pub fn parse(bytes: &[u8]) -> Option<Request> {
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let body_begun = bytes[end + 4..].to_vec();
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !version.starts_with("HTTP/1.") {
            return None;
        }
        if method == "CONNECT" {
            let (host, port) = host_and_port(target, None)?;
            return Some(Request { host, port, forwarded: None, body_begun });
        }
        let rest = target.strip_prefix("http://")?;
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        // A name and a password in an address are for the server, not for us to repeat.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = host_and_port(authority, Some(HTTP_PORT))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let mut forwarded = format!("{method} {path} {version}\r\nConnection: close\r\n");
        for line in lines.filter(|line| is_for_the_server(line)) {
            forwarded.push_str(line);
            forwarded.push_str("\r\n");
        }
        forwarded.push_str("\r\n");
        Some(Request { host, port, forwarded: Some(forwarded.into_bytes()), body_begun })
    }
}

fn is_for_the_server(line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
    !(name == "connection" || name == "keep-alive" || name.starts_with("proxy-"))
}

fn host_and_port(text: &str, otherwise: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok()?)),
        _ => (text, otherwise),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    (!host.is_empty() && host.chars().all(plain)).then(|| Some((host.to_owned(), port?)))?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tunnel_and_a_plain_request_are_understood() {
        let tunnel =
            Request::parse(b"CONNECT crates.io:443 HTTP/1.1\r\nHost: x\r\n\r\nrest").unwrap();
        assert_eq!((tunnel.host.as_str(), tunnel.port), ("crates.io", 443));
        assert_eq!((tunnel.forwarded, tunnel.body_begun), (None, b"rest".to_vec()));
        let plain = Request::parse(
            b"GET http://u:p@deb.org/a?b HTTP/1.1\r\nHost: deb.org\r\nProxy-Authorization: x\r\n\r\n",
        )
        .unwrap();
        assert_eq!((plain.host.as_str(), plain.port), ("deb.org", 80));
        let forwarded = "GET /a?b HTTP/1.1\r\nConnection: close\r\nHost: deb.org\r\n\r\n";
        assert_eq!(plain.forwarded.unwrap(), forwarded.as_bytes());
    }

    #[test]
    fn what_is_no_request_to_a_proxy_is_refused() {
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT host HTTP/1.1\r\n\r\n",
            "CONNECT a b:1 HTTP/1.1\r\n\r\n",
            "CONNECT h\u{fc}st:443 HTTP/1.1\r\n\r\n",
            "GET ftp://host/ HTTP/1.1\r\n\r\n",
            "CONNECT host:443 HTTP/1.1\r\n",
        ] {
            assert_eq!(Request::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _whatever = Request::parse(&bytes);
        }
    }
}
