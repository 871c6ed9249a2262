//! The layers of a sandbox, for people: what each stops, and whether it works here.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    Namespaces,
    Landlock,
    Syscalls,
    Limits,
    ControlGroups,
    Network,
}

impl Layer {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layer::Namespaces => "namespaces",
            Layer::Landlock => "landlock",
            Layer::Syscalls => "seccomp",
            Layer::Limits => "limits",
            Layer::ControlGroups => "cgroups",
            Layer::Network => "network",
        }
    }

    /// What would be possible without it.
    #[must_use]
    pub fn stops(self) -> &'static str {
        match self {
            Layer::Namespaces => {
                "seeing or changing files outside of the tree, seeing or signalling other processes, living on after the end"
            }
            Layer::Landlock => {
                "reading and writing outside of the listed places, tracing and signalling processes outside, abstract sockets; by rules of the kernel, whatever is mounted"
            }
            Layer::Syscalls => {
                "mounting, making namespaces, kernel keys, loading code into the kernel, raw and rare sockets, typing into a terminal"
            }
            Layer::Limits => {
                "memory, files and processor time without end, by one process; core dumps"
            }
            Layer::ControlGroups => {
                "fork bombs and memory bombs, by all processes of a box together"
            }
            Layer::Network => "any connection, but to what is forwarded on purpose",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A layer as it was found on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerState {
    pub layer: Layer,
    pub active: bool,
    /// By what it is done; or why it is not, and what can be done about that.
    pub detail: String,
}

impl LayerState {
    pub(super) fn of(layer: Layer, found: Result<String, String>) -> LayerState {
        let active = found.is_ok();
        LayerState { layer, active, detail: found.unwrap_or_else(|missing| missing) }
    }
}
