//! What the specification has drawn (TPC-C 5.11, clauses 2.1.6 and 4.3.2).

use super::Scale;
use types::random::Random;

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
/// Customers of a district whose last names are counted through.
const NAMED_IN_ORDER: u64 = 1_000;

/// A sequence of what is drawn, with the constants of one run.
#[derive(Clone, Debug)]
pub struct Draw {
    random: Random,
    scale: Scale,
    /// The run-time constants C of NURand for last names, customers and items.
    constants: [u64; 3],
}

impl Draw {
    /// A sequence of its own for each seed. Loaders and terminals of one run have the same constants.
    pub fn new(seed: u64, scale: Scale) -> Draw {
        // Clause 2.1.6.1 bounds how far the constant of last names may be from that of the load: they are
        // the same here.
        Draw { random: Random::new(seed), scale, constants: [157, 91, 4_211] }
    }

    /// A whole number, both ends among them.
    pub fn number(&mut self, from: u64, to: u64) -> u64 {
        from + self.random.below(to - from + 1)
    }

    /// True so often of a hundred times.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn uneven(&mut self, mask: u64, constant: u64, from: u64, to: u64) -> u64 {
        let (one, other) = (self.number(0, mask), self.number(from, to));
        ((one | other) + constant) % (to - from + 1) + from
    }

    /// A customer of a district.
    pub fn customer(&mut self) -> u64 {
        self.uneven(1_023, self.constants[1], 1, self.scale.customers)
    }

    /// An item.
    pub fn item(&mut self) -> u64 {
        self.uneven(8_191, self.constants[2], 1, self.scale.items)
    }

    /// A customer's last name, of one that there is.
    pub fn last_name(&mut self) -> String {
        let names = NAMED_IN_ORDER.min(self.scale.customers);
        last_name(self.uneven(255, self.constants[0], 0, names - 1))
    }

    /// The last name of a customer that is loaded.
    pub fn loaded_name(&mut self, customer: u64) -> String {
        match customer <= NAMED_IN_ORDER {
            true => last_name(customer - 1),
            false => self.last_name(),
        }
    }

    /// Letters and digits, so many at least and at most.
    pub fn text(&mut self, from: u64, to: u64) -> String {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        let length = self.number(from, to);
        (0..length).map(|_| char::from(*self.random.pick(LETTERS))).collect()
    }

    /// So many digits.
    pub fn digits(&mut self, count: u64) -> String {
        (0..count).map(|_| char::from(b'0' + self.random.below(10) as u8)).collect()
    }

    /// The zip code of an address.
    pub fn zip(&mut self) -> String {
        format!("{}11111", self.digits(4))
    }

    /// A text in which one of ten has the word that goods of a brand are known by.
    pub fn data(&mut self) -> String {
        let text = self.text(26, 50);
        if !self.percent(10) {
            return text;
        }
        let at = self.number(0, text.len() as u64 - 8) as usize;
        format!("{}ORIGINAL{}", &text[..at], &text[at + 8..])
    }

    /// The numbers from 1 on in any order.
    pub fn shuffled(&mut self, count: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (1..=count).collect();
        for at in (1..numbers.len()).rev() {
            numbers.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        numbers
    }
}

/// A last name: three syllables (clause 4.3.2.3).
fn last_name(number: u64) -> String {
    [number / 100 % 10, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize]).concat()
}

/// A sum of money with two digits behind the point, from hundredths.
pub fn money(hundredths: i64) -> String {
    let sign = if hundredths < 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", hundredths.abs() / 100, hundredths.abs() % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_three_syllables_and_money_has_two_digits() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
        assert_eq!([money(5), money(-10), money(123_456)], ["0.05", "-0.10", "1234.56"]);
    }

    #[test]
    fn what_is_drawn_is_within_its_bounds() {
        let scale = Scale { warehouses: 1, customers: 30, items: 100 };
        let mut draw = Draw::new(7, scale);
        for _ in 0..1_000 {
            assert!((1..=30).contains(&draw.customer()) && (1..=100).contains(&draw.item()));
            let text = draw.data();
            assert!((26..=50).contains(&text.len()), "{text}");
        }
        let mut all = draw.shuffled(50);
        all.sort();
        assert_eq!(all, (1..=50).collect::<Vec<u64>>());
    }
}
