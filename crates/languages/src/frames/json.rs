//! Checks whether bytes that arrive in pieces are JSON.

/// Levels of lists and objects; serde_json accepts as many.
const DEPTH: u8 = 127;
/// Characters of a number. Readers refuse longer ones, or take long over them.
const DIGITS: usize = 1024;

/// Checks JSON text byte by byte, without building anything.
///
/// It is stricter than RFC 8259 where readers of the record could fail: it bounds the
/// depth and the length and size of numbers, and refuses lone surrogates.
#[derive(Debug, Default)]
pub(super) struct Checker {
    state: State,
    /// A bit for each level: 1 for an object, 0 for a list.
    levels: u128,
    depth: u8,
    /// Whether the current string is a key.
    is_key: bool,
    /// Whether the next character must be a low surrogate.
    is_high: bool,
    number: Vec<u8>,
    first: Option<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before a value.
    #[default]
    Value,
    /// Before a list's first value, or its end.
    First,
    /// Before a key.
    Key,
    /// Before an object's first key, or its end.
    FirstKey,
    Colon,
    /// After a value.
    After,
    String,
    Escape,
    /// Within `\u`: how many digits are missing, and the value of the others.
    Hex(u8, u16),
    Number,
    /// The rest of `true`, `false` or `null`.
    Word(&'static [u8]),
    Bad,
}

impl Checker {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            match self.state {
                State::Bad => return,
                State::String if !self.is_high => {
                    // The fast path for most bytes of a long text.
                    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=31);
                    if special(&byte) {
                        self.state = self.next(byte);
                    } else {
                        let plain = rest.iter().position(special).unwrap_or(rest.len());
                        rest = &rest[plain..];
                    }
                }
                _ => self.state = self.next(byte),
            }
        }
    }

    /// Whether the whole text was one JSON value.
    pub(super) fn is_json(&mut self) -> bool {
        if self.state == State::Number {
            self.state = self.end_number();
        }
        self.state == State::After && self.depth == 0
    }

    /// Whether the value, if the text was one, is an object.
    pub(super) fn is_object(&self) -> bool {
        self.first == Some(b'{')
    }

    fn next(&mut self, byte: u8) -> State {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.state {
            state @ (State::Value
            | State::First
            | State::Key
            | State::FirstKey
            | State::Colon
            | State::After)
                if is_space =>
            {
                state
            }
            State::First if byte == b']' => self.close(false),
            State::Value | State::First => self.begin(byte),
            State::FirstKey if byte == b'}' => self.close(true),
            State::Key | State::FirstKey if byte == b'"' => {
                self.is_key = true;
                State::String
            }
            State::Colon if byte == b':' => State::Value,
            State::After => self.after(byte),
            State::String => self.in_string(byte),
            State::Escape => self.escaped(byte),
            State::Hex(left, unit) => self.hex(left, unit, byte),
            State::Number => match byte {
                b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-' => {
                    self.number.push(byte);
                    let is_long = self.number.len() > DIGITS;
                    if is_long { State::Bad } else { State::Number }
                }
                _ => {
                    self.state = self.end_number();
                    self.next(byte)
                }
            },
            State::Word([expected, rest @ ..]) if *expected == byte => match rest {
                [] => State::After,
                rest => State::Word(rest),
            },
            _ => State::Bad,
        }
    }

    fn begin(&mut self, byte: u8) -> State {
        self.first.get_or_insert(byte);
        match byte {
            b'"' => {
                self.is_key = false;
                State::String
            }
            b'[' | b'{' if self.depth == DEPTH => State::Bad,
            b'[' | b'{' => {
                let is_object = byte == b'{';
                self.depth += 1;
                self.levels = self.levels << 1 | u128::from(is_object);
                match is_object {
                    true => State::FirstKey,
                    false => State::First,
                }
            }
            b't' => State::Word(b"rue"),
            b'f' => State::Word(b"alse"),
            b'n' => State::Word(b"ull"),
            b'-' | b'0'..=b'9' => {
                self.number.clear();
                self.number.push(byte);
                State::Number
            }
            _ => State::Bad,
        }
    }

    fn close(&mut self, is_object: bool) -> State {
        if self.depth == 0 || (self.levels & 1 == 1) != is_object {
            return State::Bad;
        }
        self.depth -= 1;
        self.levels >>= 1;
        State::After
    }

    fn after(&mut self, byte: u8) -> State {
        match byte {
            b',' if self.depth == 0 => State::Bad,
            b',' if self.levels & 1 == 1 => State::Key,
            b',' => State::Value,
            b']' => self.close(false),
            b'}' => self.close(true),
            _ => State::Bad,
        }
    }

    fn in_string(&mut self, byte: u8) -> State {
        match byte {
            b'\\' => State::Escape,
            _ if self.is_high => State::Bad,
            b'"' if self.is_key => State::Colon,
            b'"' => State::After,
            0..=31 => State::Bad,
            _ => State::String,
        }
    }

    fn escaped(&mut self, byte: u8) -> State {
        match byte {
            b'u' => State::Hex(4, 0),
            _ if self.is_high => State::Bad,
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => State::String,
            _ => State::Bad,
        }
    }

    fn hex(&mut self, left: u8, unit: u16, byte: u8) -> State {
        let Some(digit) = char::from(byte).to_digit(16) else {
            return State::Bad;
        };
        let unit = unit << 4 | digit as u16;
        if left > 1 {
            return State::Hex(left - 1, unit);
        }
        let is_partner = (0xDC00..=0xDFFF).contains(&unit);
        if is_partner != self.is_high {
            return State::Bad;
        }
        self.is_high = (0xD800..=0xDBFF).contains(&unit);
        State::String
    }

    /// A number as JSON writes it, and one that a double can hold.
    fn end_number(&self) -> State {
        match record::json::from_slice::<f64>(&self.number) {
            Ok(_) => State::After,
            Err(_) => State::Bad,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_json(text: &[u8]) -> bool {
        let mut checker = Checker::default();
        checker.push(text);
        checker.is_json()
    }

    #[test]
    fn depth_and_numbers_are_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(is_json(nested(127).as_bytes()));
        assert!(!is_json(nested(128).as_bytes()));
        assert!(!is_json("[".repeat(1 << 20).as_bytes()));
        assert!(is_json("9".repeat(300).as_bytes()));
        assert!(!is_json("9".repeat(2000).as_bytes()));
        assert!(!is_json(b"1e999"));
    }

    proptest! {
        #[test]
        fn it_is_what_serde_json_takes(
            text in prop_oneof![
                r#"[\[\]{}:,"a1\-.e0+ \\u\n]{0,24}"#,
                r#"\[("(\\u[dD][89abcdef]0[0-9]|\\[nux/]|a)*"|-?[0-9.eE+]{1,5}|true|nul|\{"":0\}|,)*\]"#,
            ],
            cut in any::<prop::sample::Index>(),
        ) {
            let expected = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            let (head, tail) = text.as_bytes().split_at(cut.index(text.len() + 1));
            let mut checker = Checker::default();
            checker.push(head);
            checker.push(tail);
            prop_assert_eq!(checker.is_json(), expected, "{}", text);
        }
    }
}
