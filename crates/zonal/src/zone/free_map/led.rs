//! Taking a block from a pageblock that a hint led to, for a CPU that may make it its current one.
//!
//! The hint is lowered before the look at the line (M-4), so that one look is enough. If it shows more than one block of
//! what is wanted, the pageblock becomes the current one and has no hints. If it does not, what is left there is of smaller
//! orders, the hints of which stand, and the CPU has no current pageblock: to lower them all and to raise them again for one
//! block costs more than the block. A CPU that may have none lowers the hint once there is none left.

use super::bits::{Runs, aligned_runs, exact_runs, low_bits};
use super::hints::Kind;
use super::shape::{Frame, Pageblock, WORD_ORDER, WordIndex};
use super::{Current, FreeMap};
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use core::sync::atomic::Ordering::SeqCst;

/// What a look at a line shows to a request for a block of an order.
#[derive(Clone, Copy)]
struct Look {
    /// The first maximal run of the order that the hint says: its first frame, and the word that this is in.
    first: Frame,
    word: u64,
    /// Whether there is more than one block.
    several: bool,
    /// Whether other frames than those of the run are free.
    others: bool,
}

impl<P: Platform> FreeMap<'_, P> {
    /// Takes a block of `order` from a pageblock that the hint for runs of `step`, of the order or a larger one, led to; the
    /// pageblock becomes `held`, if there may be one, where it has several. `None`: there was none, or another CPU was faster,
    /// and the caller looks at all hints of the pageblock. One update for the hint and one for each word taken; more for a
    /// pageblock that becomes the current one, and for what is left of a larger run where there may be none.
    // Out of line: in a loop over orders, what it needs of each would be worked out before the first.
    #[inline(never)]
    pub(super) fn take_led(
        &self,
        held: Option<&mut Current>,
        pageblock: Pageblock,
        (migrate, order, step): (MigrateType, Order, u32),
    ) -> Option<Frame> {
        let (wanted, kind) = (u32::from(order.get()), Kind::Run(migrate, step));
        if held.is_some() {
            self.clear(kind, pageblock);
        }
        let look = match step < WORD_ORDER {
            true => self.look_inside(pageblock, wanted, step)?,
            false => self.look_at_words(pageblock, wanted, step)?,
        };
        let taken = match wanted <= WORD_ORDER {
            // The word as it was seen, so that nothing else has changed there.
            true => self.exchange(look, order),
            // What is left is filed below, once.
            false => self.take_at(pageblock, look.first, order, true),
        };
        if !taken {
            return None;
        }
        let frame = self.keep_typed(pageblock, migrate, look.first, order)?;
        match held {
            Some(held) if look.several => self.hold(held, pageblock, migrate),
            None if look.several => self.file_rest(pageblock, wanted, step),
            // The hint was lowered before the look; words that were filled since were filed as one run with those that are gone.
            Some(_) if look.others && wanted < WORD_ORDER => {}
            Some(_) if look.others => self.settle_if(pageblock, |word| word == u64::MAX),
            Some(_) => self.lower_empty(pageblock, migrate),
            None => self.lower_taken(pageblock, (migrate, step), look.others),
        }
        Some(frame)
    }

    /// All runs of order `step` that were seen were taken, of a line that has `others`, or nothing else.
    pub(super) fn lower_taken(
        &self,
        pageblock: Pageblock,
        (migrate, step): (MigrateType, u32),
        others: bool,
    ) {
        self.clear(Kind::Run(migrate, step), pageblock);
        let runs = Runs::of(step.min(WORD_ORDER));
        match others {
            true => self.settle_if(pageblock, |word| runs.ends(word) != 0),
            false => self.lower_empty(pageblock, migrate),
        }
    }

    /// All that was free of a line was taken.
    fn lower_empty(&self, pageblock: Pageblock, migrate: MigrateType) {
        self.clear(Kind::Free(migrate), pageblock);
        self.settle_if(pageblock, |word| word != 0);
    }

    /// A block was taken of a run of order `step`, and no CPU keeps the rest (M-3).
    fn file_rest(&self, pageblock: Pageblock, order: u32, step: u32) {
        match step < WORD_ORDER {
            true if step > order => _ = self.file_rarely(pageblock, (1 << step) - (1 << order)),
            true => {}
            // Words beside it may have been filled since, and filed as one run with those that are gone.
            false => self.settle(pageblock),
        }
    }

    fn exchange(&self, look: Look, order: Order) -> bool {
        let (at, bit) = look.first.word();
        let taken = look.word & !(low_bits(order.size()) << bit.trailing_zeros());
        self.frames_word(at).compare_exchange(look.word, taken, SeqCst, SeqCst).is_ok()
    }

    /// [Settles](Self::settle) a pageblock if a word of its line is such.
    fn settle_if(&self, pageblock: Pageblock, is_such: impl Fn(u64) -> bool) {
        let (words, bits) = self.line(pageblock);
        if self.frames_words(words).iter().any(|word| is_such(word.load(SeqCst) & bits)) {
            self.settle(pageblock);
        }
    }

    /// Looks at a line for the first maximal run of order `step`, below a word, and for other blocks of `order`.
    fn look_inside(&self, pageblock: Pageblock, order: u32, step: u32) -> Option<Look> {
        let (words, bits) = self.line(pageblock);
        let (first, runs) = (words.start, Runs::of(order));
        let (mut found, mut seen, mut several, mut others) = (None, false, false, 0);
        // As by `read_line`.
        for (word, at) in self.frames_words(words).iter().zip(first..) {
            let whole = word.load(SeqCst);
            let word = whole & bits;
            let fit = runs.ends(word);
            if fit != 0 {
                several |= seen | (fit & (fit - 1) != 0);
                seen = true;
                if found.is_none()
                    && let exact @ 1.. = exact_runs(word, step)
                {
                    let bit = exact.trailing_zeros();
                    found = Some((Frame(WordIndex(at).first_frame().0 + bit), whole));
                    others |= word & !(low_bits(1 << step) << bit);
                    continue;
                }
            }
            others |= word;
        }
        let (first, word) = found?;
        Some(Look { first, word, several, others: others != 0 })
    }

    /// The same for a run of words.
    fn look_at_words(&self, pageblock: Pageblock, order: u32, step: u32) -> Option<Look> {
        let (words, _) = self.line(pageblock);
        let (mut full, mut others) = (0_u64, 0);
        for (word, at) in self.frames_words(words).iter().zip(0..) {
            match word.load(SeqCst) {
                u64::MAX => full |= 1 << at,
                word => others |= word,
            }
        }
        let exact = exact_runs(full, step - WORD_ORDER);
        if exact == 0 {
            return None;
        }
        let at = exact.trailing_zeros();
        let fit = aligned_runs(full, order.saturating_sub(WORD_ORDER));
        others |= full & !(low_bits(1 << (step - WORD_ORDER)) << at);
        Some(Look {
            first: Frame(pageblock.first_frame(self.shape()).0 + at * 64),
            word: u64::MAX,
            several: order < WORD_ORDER || fit & (fit - 1) != 0,
            others: others != 0,
        })
    }
}
