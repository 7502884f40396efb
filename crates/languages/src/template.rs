//! Requests to a template for a copy of itself, and to the copy
//! (`python/cellblock_driver/template.py`), in the form that [`super::frames`] describes, without
//! its length.

/// The argument behind which a shim finds the modules to load as a template.
pub const TEMPLATE: &str = "template";

/// A system call that a copy is to make, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number on this machine.
    pub number: i64,
    /// Its arguments.
    pub arguments: Vec<Argument>,
    /// The error number that it must fail with, if it must fail.
    pub refused: Option<i32>,
}

/// An argument of a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A number.
    Number(i64),
    /// A descriptor that comes with the request, by its place there.
    Descriptor(usize),
    /// The address of these bytes.
    Bytes(Vec<u8>),
    /// The address of a `struct sock_fprog` for these instructions.
    Filter(Vec<u8>),
}

/// What a template is asked for: numbers of system calls, and machine code for the fork. The
/// descriptors that come with it are the socket on which the copy talks to its supervisor, and the
/// pid namespace in which it is forked.
pub fn fork_request() -> Vec<u8> {
    let mut message = Vec::new();
    let watch = [libc::SYS_userfaultfd, sys::watched::FLAGS.into()];
    let watch = watch.map(|number| number.to_string()).join(" ");
    add(
        &mut message,
        "setns",
        libc::SYS_setns.to_string().as_bytes(),
    );
    add(&mut message, "watch", watch.as_bytes());
    add(&mut message, "double_fork", sys::double_fork::code());
    message
}

/// What a copy is asked for; the first descriptors that come with it become its own.
#[derive(Clone, Debug, Default)]
pub struct CopyRequest {
    /// What the copy does, in this order.
    pub calls: Vec<Call>,
    /// How many of the calls come before it touches what it is to have for itself.
    pub entered: usize,
    /// Whether an execution waits for it. Then it touches nothing in advance.
    pub is_awaited: bool,
    /// Its environment.
    pub environment: Vec<Vec<u8>>,
}

fn add(message: &mut Vec<u8>, key: &str, value: &[u8]) {
    message.extend([b'b', key.len() as u8]);
    message.extend((value.len() as u32).to_be_bytes());
    message.extend(key.as_bytes());
    message.extend(value);
}

impl CopyRequest {
    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        let mut message = Vec::new();
        let mut add = |key: &str, value: &[u8]| add(&mut message, key, value);
        add("entered", self.entered.to_string().as_bytes());
        if self.is_awaited {
            add("awaited", b"1");
        }
        for entry in &self.environment {
            add("environment", entry);
        }
        let mut buffers = 0;
        for call in &self.calls {
            let refused = call.refused.map(|errno| format!("{errno}!"));
            let mut line = format!("{}{}", refused.unwrap_or_default(), call.number);
            for argument in &call.arguments {
                let (kind, number) = match argument {
                    Argument::Number(number) => ('n', *number),
                    Argument::Descriptor(place) => ('d', *place as i64),
                    Argument::Bytes(bytes) | Argument::Filter(bytes) => {
                        add("buffer", bytes);
                        buffers += 1;
                        let is_filter = matches!(argument, Argument::Filter(_));
                        (if is_filter { 'f' } else { 'b' }, buffers - 1)
                    }
                };
                line.push_str(&format!(" {kind}{number}"));
            }
            add("call", line.as_bytes());
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_name_their_buffers_by_place() {
        let call = |arguments| Call {
            number: 7,
            arguments,
            refused: None,
        };
        let request = CopyRequest {
            calls: vec![
                call(vec![Argument::Number(-1), Argument::Descriptor(2)]),
                call(vec![
                    Argument::Bytes(b"/".to_vec()),
                    Argument::Filter(b"12345678".to_vec()),
                ]),
                Call {
                    refused: Some(13),
                    ..call(vec![Argument::Number(2)])
                },
            ],
            entered: 1,
            is_awaited: true,
            environment: vec![b"A=1".to_vec()],
        };
        let message = request.encode();
        let text = String::from_utf8_lossy(&message);
        for part in [
            "7 n-1 d2", "7 b0 f1", "13!7 n2", "A=1", "12345678", "awaited1",
        ] {
            assert!(text.contains(part), "{part} in {text:?}");
        }
    }
}
