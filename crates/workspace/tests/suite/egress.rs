//! A box that may speak to a few, and to nobody else.

use std::collections::BTreeMap;

use kapelle_workspace::egress::{AllowList, Egress};
use kapelle_workspace::sandbox::Forward;
use kapelle_workspace::{Network, Walls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

use crate::fixture::{Fixture, prepared, run_boxed};

/// Ordinary programs find their proxy like this.
const PORT: u16 = 3_128;

/// A server of the simplest kind, which says what it was asked for.
async fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut asked = vec![0; 1_024];
            let count = client.read(&mut asked).await.unwrap_or(0);
            let line =
                String::from_utf8_lossy(&asked[..count]).lines().next().unwrap_or("").to_owned();
            let body = format!("asked: {line}");
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _gone = client.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    port
}

fn with_proxy(walls: &Walls, egress: &Egress) -> Walls {
    let mut walls = walls.clone();
    walls.network = Network::Forwards(vec![Forward { port: PORT, socket: egress.path().into() }]);
    walls.env.insert("http_proxy".into(), format!("http://127.0.0.1:{PORT}").into());
    walls
}

fn get(url: &str) -> String {
    format!(
        "perl -MHTTP::Tiny -e 'my $r = HTTP::Tiny->new->get(\"{url}\"); print $r->{{status}}, \" \", $r->{{content}}'"
    )
}

/// An ordinary HTTP client in the box, a real server outside, and the list between them.
#[tokio::test]
async fn a_listed_host_is_reached_and_another_is_not() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let (allowed, other) = (server().await, server().await);
    let list = AllowList::new([format!("127.0.0.1:{allowed}").as_str()]).unwrap();
    let egress = Egress::listen(&fixture.path("egress"), list).unwrap();
    let walls = with_proxy(&walls, &egress);
    let url = |port: u16| format!("http://127.0.0.1:{port}/page");

    let reached = run_boxed(fixture.shell(worktree.dir(), &get(&url(allowed))), &walls).await;
    assert_eq!(reached.tail, "200 asked: GET /page HTTP/1.1", "{reached:?}");

    let refused = run_boxed(fixture.shell(worktree.dir(), &get(&url(other))), &walls).await;
    assert!(refused.tail.starts_with("403 kapelle: 127.0.0.1:"), "{refused:?}");
    assert_eq!(egress.refused(), BTreeMap::from([(format!("127.0.0.1:{other}"), 1)]));

    let direct = format!("exec 3<>/dev/tcp/127.0.0.1/{allowed}");
    let around = run_boxed(fixture.shell(worktree.dir(), &direct), &walls).await;
    assert_ne!(around.code, Some(0), "there is no way but the proxy: {around:?}");
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let port = server().await;
    let list = AllowList::new([format!("127.0.0.1:{port}").as_str()]).unwrap();
    let egress = Egress::listen(&fixture.path("egress"), list).unwrap();
    let talk = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf 'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n' >&3; \
         read -r line <&3; read -r empty <&3; printf 'GET /deep HTTP/1.1\\r\\n\\r\\n' >&3; \
         echo \"$line\"; grep -ao 'asked.*' <&3"
    );
    let walls = with_proxy(&walls, &egress);
    let exit = run_boxed(fixture.shell(worktree.dir(), &talk), &walls).await;
    let expected = "HTTP/1.1 200 Connection established\r\nasked: GET /deep HTTP/1.1\n";
    assert_eq!(exit.tail, expected, "{exit:?}");
}

/// The gateway's own socket: any server outside that listens on a path.
#[tokio::test]
async fn a_forwarded_port_leads_to_its_socket() {
    let fixture = Fixture::new();
    let (worktree, mut walls) = prepared(&fixture).await;
    let socket = fixture.path("gateway");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        client.write_all(b"hello from outside\n").await.unwrap();
    });
    walls.network = Network::Forwards(vec![Forward { port: 8_080, socket }]);
    let command = "exec 3<>/dev/tcp/127.0.0.1/8080; cat <&3; exit 7";
    let exit = run_boxed(fixture.shell(worktree.dir(), command), &walls).await;
    assert_eq!((exit.code, exit.tail.as_str()), (Some(7), "hello from outside\n"), "{exit:?}");
}
