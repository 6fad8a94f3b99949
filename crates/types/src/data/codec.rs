//! Small pieces of byte layouts: variable-length integers and a reader that cannot run past the end.

/// Appends seven bits a byte, lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a signed number so that small ones of either sign are short.
pub(crate) fn put_signed(out: &mut Vec<u8>, number: i128) {
    put_varint(out, ((number << 1) ^ (number >> 127)) as u128);
}

/// Appends a length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u128);
    out.extend_from_slice(bytes);
}

/// Reads from the front of a slice. Every method answers `None` at the end or on a malformed number.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes }
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(front)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn varint(&mut self) -> Option<u128> {
        let mut number = 0u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            let part = u128::from(byte & 0x7f);
            if (part << shift) >> shift != part {
                return None;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i128> {
        let number = self.varint()?;
        Some((number >> 1) as i128 ^ -((number & 1) as i128))
    }

    /// A length that can be no larger than what is left, so that it is safe to reserve room for.
    pub(crate) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.varint()?).ok()?;
        (count <= self.left()).then_some(count)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.count()?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, -1, 63, 64, -64, -65, i64::MAX.into(), i64::MIN.into(), i128::MAX, i128::MIN] {
            let mut out = Vec::new();
            put_signed(&mut out, number);
            let mut input = Input::new(&out);
            assert_eq!(input.signed(), Some(number));
            assert_eq!(input.left(), 0);
        }
    }

    #[test]
    fn a_number_without_an_end_or_beyond_128_bits_is_refused() {
        assert_eq!(Input::new(&[0x80]).varint(), None);
        assert_eq!(Input::new(&[0xff; 40]).varint(), None);
        let mut wide = vec![0xff; 18];
        wide.push(0x7f);
        assert_eq!(Input::new(&wide).varint(), None);
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        assert_eq!(Input::new(&[5, 1, 2]).bytes(), None);
        assert_eq!(Input::new(&[2, 1, 2]).bytes(), Some(&[1u8, 2][..]));
    }
}
