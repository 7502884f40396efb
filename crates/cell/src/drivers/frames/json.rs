//! Whether bytes that come in pieces are JSON.

/// Lists and objects within each other, as many as serde_json takes.
const DEPTH: u8 = 127;
/// Characters of a number. Readers refuse longer ones, or take long for them.
const DIGITS: usize = 1024;

/// Checks JSON text as it comes, a byte at a time and without building anything.
///
/// It is stricter than RFC 8259 in what readers of the record could stumble over:
/// depth, the length and size of numbers, and surrogates without a partner.
#[derive(Debug)]
pub(super) struct Checker {
    state: State,
    /// A bit for each level: whether it is an object.
    levels: u128,
    depth: u8,
    /// The string is a key.
    is_key: bool,
    /// A high surrogate waits for its partner.
    is_high: bool,
    number: Vec<u8>,
    first: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value comes; in a list that is empty so far, its end may.
    Value,
    First,
    /// A key comes; in an object that is empty so far, its end may.
    Key,
    FirstKey,
    Colon,
    /// A value has ended.
    After,
    String,
    Escape,
    /// Digits of `\u` that are to come, and those that came.
    Hex(u8, u16),
    Number,
    /// What is left of `true`, `false` or `null`.
    Word(&'static [u8]),
    Bad,
}

impl Checker {
    pub(super) fn new() -> Self {
        Self {
            state: State::Value,
            levels: 0,
            depth: 0,
            is_key: false,
            is_high: false,
            number: Vec::new(),
            first: None,
        }
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            match self.state {
                State::Bad => return,
                State::String if !self.is_high => {
                    // Most of a long text is this.
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

    /// Whether all of it was one JSON value.
    pub(super) fn is_json(&mut self) -> bool {
        if self.state == State::Number {
            self.state = self.end_number();
        }
        self.state == State::After && self.depth == 0
    }

    /// Whether the value is an object, if it is one at all.
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
                if is_object {
                    State::FirstKey
                } else {
                    State::First
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

    fn end_number(&self) -> State {
        match is_number(&self.number) {
            true => State::After,
            false => State::Bad,
        }
    }
}

/// Whether it is a number as JSON writes it, and one that a double can hold.
fn is_number(text: &[u8]) -> bool {
    fn digits(text: &[u8]) -> Option<&[u8]> {
        let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count > 0).then(|| &text[count..])
    }
    let of_grammar = || {
        let mut rest = text.strip_prefix(b"-").unwrap_or(text);
        rest = match rest {
            [b'0', rest @ ..] => rest,
            rest => digits(rest)?,
        };
        if let Some(fraction) = rest.strip_prefix(b".") {
            rest = digits(fraction)?;
        }
        if let [b'e' | b'E', exponent @ ..] = rest {
            let signless = match exponent {
                [b'+' | b'-', rest @ ..] => rest,
                rest => rest,
            };
            rest = digits(signless)?;
        }
        Some(rest.is_empty())
    };
    let is_finite = || {
        let text = std::str::from_utf8(text).ok()?;
        Some(text.parse::<f64>().ok()?.is_finite())
    };
    of_grammar() == Some(true) && is_finite() == Some(true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_json(text: &[u8]) -> bool {
        let mut checker = Checker::new();
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
            let mut checker = Checker::new();
            checker.push(head);
            checker.push(tail);
            prop_assert_eq!(checker.is_json(), expected, "{}", text);
        }
    }
}
