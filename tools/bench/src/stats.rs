//! What several rounds say together: medians, extremes, ratios.

use serde::Serialize;

/// The same figure from several rounds of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// All, in the order of the rounds.
    pub rounds: Vec<f64>,
}

impl Spread {
    /// Of these figures; `None` if there are none, or one of them is not a number.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let rounds: Vec<f64> = figures.into_iter().collect();
        let median = median(&rounds)?;
        let min = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let max = rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Spread {
            median: tidy(median),
            min: tidy(min),
            max: tidy(max),
            rounds: rounds.into_iter().map(tidy).collect(),
        })
    }

    /// Each round's figure of `ours` over the same round's of `base`. Rounds next to each other see the same
    /// machine, so the median of their ratios is steadier than the ratio of the medians.
    pub fn of_ratios(ours: &[f64], base: &[f64]) -> Option<Spread> {
        Spread::of(ours.iter().zip(base).map(|(ours, base)| ours / base))
    }
}

/// The middle of these figures; `None` if there are none, or one of them is not a number.
pub fn median(figures: &[f64]) -> Option<f64> {
    if figures.is_empty() || figures.iter().any(|figure| !figure.is_finite()) {
        return None;
    }
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    Some(if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 })
}

/// Four significant digits: more would claim a precision that no round has.
pub fn tidy(figure: f64) -> f64 {
    if figure == 0.0 || !figure.is_finite() {
        return figure;
    }
    let places = 3 - figure.abs().log10().floor() as i32;
    if places <= 0 {
        return figure.round();
    }
    let scale = 10f64.powi(places);
    (figure * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn a_spread_keeps_the_rounds_in_order() {
        let spread = Spread::of([30.0, 10.0, 20.0]).expect("three figures");
        assert_eq!((spread.median, spread.min, spread.max), (20.0, 10.0, 30.0));
        assert_eq!(spread.rounds, [30.0, 10.0, 20.0]);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The machine was twice as slow in the second round; the ratio is not.
        let ratio = Spread::of_ratios(&[50.0, 25.0, 60.0], &[100.0, 50.0, 100.0]).expect("three rounds");
        assert_eq!((ratio.median, ratio.min, ratio.max), (0.5, 0.5, 0.6));
        assert_eq!(Spread::of_ratios(&[1.0], &[0.0]), None, "a base that did nothing gives no ratio");
    }

    #[test]
    fn figures_are_rounded_to_four_digits() {
        assert_eq!(tidy(123_456.7), 123_457.0);
        assert_eq!(tidy(1.234_56), 1.235);
        assert_eq!(tidy(0.012_345_6), 0.012_35);
        assert_eq!(tidy(0.0), 0.0);
        assert_eq!(tidy(98.765), 98.77);
    }
}
