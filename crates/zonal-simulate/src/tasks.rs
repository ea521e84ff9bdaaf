//! Numbers of tasks as people write them: one, or a range.
//!
//! ```
//! use zonal_simulate::tasks::Tasks;
//!
//! let tasks = |text: &str| text.parse::<Tasks>().map(|tasks| tasks.0);
//! assert_eq!(tasks("1..256"), Ok(vec![1, 2, 4, 8, 16, 32, 64, 128, 256]));
//! assert_eq!(tasks("10..112"), Ok(vec![10, 16, 32, 64, 112]));
//! assert_eq!(tasks("25..100:25"), Ok(vec![25, 50, 75, 100]));
//! assert_eq!(tasks("7"), Ok(vec![7]));
//! ```

use core::str::FromStr;

/// The most numbers of a range: a typing error is not to ask for a week of simulations.
const MOST: usize = 1024;

/// Numbers of tasks, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tasks(pub Vec<u32>);

impl FromStr for Tasks {
    type Err = String;

    /// `N`; `A..B`, which is both ends and the powers of two between; `A..B:STEP`.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((from, rest)) = text.split_once("..") else {
            return number(text).map(|number| Self(vec![number]));
        };
        let (to, step) = match rest.split_once(':') {
            Some((to, step)) => (to, Some(number(step)?)),
            None => (rest, None),
        };
        if step == Some(0) {
            return Err(format!("`{text}` does not move"));
        }
        let (from, to) = (number(from)?, number(to)?);
        if from > to {
            return Err(format!("`{text}` begins above its end"));
        }
        let mut numbers: Vec<u32> = match step {
            Some(step) => (from..=to).step_by(step as usize).take(MOST + 1).collect(),
            None => {
                let powers = (0..u32::BITS).map(|bit| 1u32 << bit);
                [from].into_iter().chain(powers.filter(|it| (from..=to).contains(it))).collect()
            }
        };
        numbers.push(to);
        numbers.dedup();
        if numbers.len() > MOST {
            return Err(format!("`{text}` is more than {MOST} numbers"));
        }
        Ok(Self(numbers))
    }
}

fn number(text: &str) -> Result<u32, String> {
    // What a machine has CPUs for is the simulator's to say, of 0 too.
    let wrong = |_| format!("`{text}` is no number of tasks; 8, 1..256 and 16..112:16 are");
    text.parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_range_is_said() {
        let why = |text: &str| text.parse::<Tasks>().expect_err("it is none");
        assert!(why("x").contains("1..256"));
        assert!(why("-1..4").contains("no number"));
        assert!(why("8..4").contains("begins above"));
        assert!(why("1..100000:1").contains("more than"));
        for zero in ["0", "00", "+0"] {
            assert!(why(&format!("1..4:{zero}")).contains("does not move"));
        }
    }

    #[test]
    fn both_ends_are_in_it_once() {
        assert_eq!("8..8".parse(), Ok(Tasks(vec![8])));
        assert_eq!("1..10:4".parse(), Ok(Tasks(vec![1, 5, 9, 10])));
        assert_eq!("3..5".parse(), Ok(Tasks(vec![3, 4, 5])));
    }
}
