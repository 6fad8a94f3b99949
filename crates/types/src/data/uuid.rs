//! UUIDs as text: PostgreSQL's forms are read, one is written.

use std::fmt;

/// Reads a UUID: 32 hexadecimal digits, with hyphens behind any group of four, in braces or not. `None`: it
/// is none.
pub fn parse(text: &str) -> Option<[u8; 16]> {
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let mut bytes = [0; 16];
    let (mut digits, mut last_was_hyphen) = (0, false);
    for byte in inner.bytes() {
        if byte == b'-' {
            if digits == 0 || digits % 4 != 0 || last_was_hyphen {
                return None;
            }
            last_was_hyphen = true;
            continue;
        }
        last_was_hyphen = false;
        let digit = char::from(byte).to_digit(16)? as u8;
        *bytes.get_mut(digits / 2)? |= if digits % 2 == 0 { digit << 4 } else { digit };
        digits += 1;
    }
    (digits == 32 && !last_was_hyphen).then_some(bytes)
}

/// Writes a UUID with lower-case digits and four hyphens.
pub fn write(f: &mut impl fmt::Write, bytes: [u8; 16]) -> fmt::Result {
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            f.write_char('-')?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

/// These bytes as a UUID of version 4: all random but for what says so.
pub fn version_4(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_postgresql_reads_is_read_and_nothing_else() {
        let mut text = String::new();
        let bytes = parse("A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11").expect("a uuid");
        write(&mut text, bytes).expect("writes");
        assert_eq!(text, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
        for same in [
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
        ] {
            assert_eq!(parse(same), Some(bytes), "{same}");
        }
        for wrong in [
            "",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
            "a0e-ebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let made = version_4([0xff; 16]);
        assert_eq!((made[6], made[8]), (0x4f, 0xbf));
    }
}
