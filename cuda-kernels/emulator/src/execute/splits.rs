//! Divergence and reconvergence of a warp's lanes.
//!
//! A *split* is a set of lanes that share a program counter. A warp begins as one split. Where
//! its lanes diverge at a branch, the split waits at the reconvergence point (the branch's
//! immediate post-dominator). Each side becomes a split of its own that ends there; when the last
//! has arrived, the waiting split continues with all of them. Splits form a tree instead of the
//! usual stack: any leaf may run, so that a lane which waits for another lane of its warp (a
//! shuffle in another branch, a lock) does not block that lane. Of the splits that can run, the
//! one with the lowest program counter goes first, and splits that meet on the way are joined.
//! This keeps lanes together even where early returns move the formal reconvergence point to the
//! end of the kernel.
//!
//! A loop in which some lanes wait for work that others do only *after* the loop (a spin lock)
//! would never end that way. So after a number of instructions, lanes that have arrived at a
//! reconvergence point are released ahead of the others.

/// State of a split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Ready,
    /// Waits for its children.
    Parent,
    /// Waits for the lanes of the mask to reach the same instruction.
    WarpSync(u32),
    /// Waits for the rest of its warp, before a barrier of the block that warps execute together.
    Gathering,
    /// Waits at a barrier of the block.
    Barrier,
    /// Tries an instruction again when something has happened.
    Poll,
    /// Unused.
    Free,
}

/// Lanes that share a program counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    pub(crate) mask: u32,
    pub(crate) pc: u32,
    /// Reconvergence point, where it ends.
    pub(crate) meet: u32,
    parent: u32,
    children: u32,
    /// Lanes of children that have reached the reconvergence point.
    arrived: u32,
    pub(crate) state: State,
    last_run: u64,
}

const NONE: u32 = u32::MAX;
/// Number of choices after which a starved split gets its turn.
const FAIR: u64 = 64;
/// Instructions of the warp after which lanes at a reconvergence point are released, if none has
/// arrived since.
const PATIENCE: u64 = 4_000;

/// The splits of a warp.
#[derive(Clone, Debug, Default)]
pub(crate) struct Splits {
    all: Vec<Split>,
    /// Splits that are ready.
    pub(crate) ready: u32,
    choices: u64,
    /// The warp's clock.
    now: u64,
    last_arrival: u64,
}

impl Splits {
    /// Starts with one split of all lanes.
    pub(crate) fn start(&mut self, mask: u32, end: u32) {
        self.all.clear();
        self.ready = 1;
        self.choices = 0;
        self.now = 0;
        self.last_arrival = 0;
        self.all.push(Split {
            mask,
            pc: 0,
            meet: end,
            parent: NONE,
            children: 0,
            arrived: 0,
            state: State::Ready,
            last_run: 0,
        });
    }

    pub(crate) fn get(&mut self, index: usize) -> &mut Split {
        &mut self.all[index]
    }

    /// The splits in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Split)> {
        self.all.iter().enumerate().filter(|(_, split)| split.state != State::Free)
    }

    pub(crate) fn finished(&self) -> bool {
        self.all.iter().all(|split| split.state == State::Free)
    }

    pub(crate) fn set_state(&mut self, index: usize, state: State) {
        self.ready -= u32::from(self.all[index].state == State::Ready);
        self.ready += u32::from(state == State::Ready);
        self.all[index].state = state;
    }

    /// Splits that wait for something to happen try again.
    pub(crate) fn retry(&mut self) {
        for index in 0..self.all.len() {
            if self.all[index].state == State::Poll {
                self.set_state(index, State::Ready);
            }
        }
    }

    fn add(&mut self, mask: u32, pc: u32, meet: u32, parent: u32) {
        let split = Split {
            mask,
            pc,
            meet,
            parent,
            children: 0,
            arrived: 0,
            state: State::Ready,
            last_run: self.choices,
        };
        self.ready += 1;
        if parent != NONE {
            self.all[parent as usize].children += 1;
        }
        match self.all.iter().position(|split| split.state == State::Free) {
            Some(free) => self.all[free] = split,
            None => self.all.push(split),
        }
    }

    /// The split that runs next; `now` is the number of instructions that the warp has executed.
    pub(crate) fn choose(&mut self, now: u64) -> Option<usize> {
        self.choices += 1;
        self.now = now;
        if now - self.last_arrival > PATIENCE {
            self.last_arrival = now;
            self.let_go();
        }
        if self.ready > 1 {
            self.join();
        }
        let ready = self.all.iter().enumerate().filter(|(_, split)| split.state == State::Ready);
        let chosen = if self.choices.is_multiple_of(FAIR) {
            ready.min_by_key(|(_, split)| split.last_run)
        } else {
            ready.min_by_key(|(_, split)| split.pc)
        };
        let index = chosen?.0;
        self.all[index].last_run = self.choices;
        Some(index)
    }

    /// Joins splits with the same program counter and the same reconvergence point.
    fn join(&mut self) {
        for a in 0..self.all.len() {
            for b in a + 1..self.all.len() {
                let (first, second) = (self.all[a], self.all[b]);
                if first.state == State::Ready
                    && second.state == State::Ready
                    && (first.pc, first.parent, first.meet)
                        == (second.pc, second.parent, second.meet)
                {
                    self.all[a].mask |= second.mask;
                    self.set_state(b, State::Free);
                    if first.parent != NONE {
                        self.all[first.parent as usize].children -= 1;
                    }
                }
            }
        }
    }

    /// Releases lanes that wait at a reconvergence point ahead of the others.
    fn let_go(&mut self) {
        for index in 0..self.all.len() {
            let split = self.all[index];
            if split.state == State::Parent && split.arrived != 0 && split.arrived != split.mask {
                self.all[index].mask &= !split.arrived;
                self.all[index].arrived = 0;
                self.add(split.arrived, split.pc, split.meet, split.parent);
            }
        }
    }

    /// Divides a split: `ways` are (lanes, target). `live` are the lanes that have not exited.
    pub(crate) fn part(&mut self, index: usize, ways: &[(u32, u32)], meet: u32, live: u32) {
        let split = self.all[index];
        if split.meet == meet {
            // A parent that already waits there serves these as well.
            let mut first = true;
            for &(mask, pc) in ways {
                if pc == meet && split.parent != NONE {
                    self.last_arrival = self.now;
                    self.all[split.parent as usize].arrived |= mask;
                } else if first {
                    first = false;
                    self.all[index].mask = mask;
                    self.all[index].pc = pc;
                } else {
                    self.add(mask, pc, meet, split.parent);
                }
            }
            if first {
                self.all[index].mask = 0;
                self.end(index, live);
            }
            return;
        }
        self.all[index].pc = meet;
        self.set_state(index, State::Parent);
        for &(mask, pc) in ways {
            if pc == meet {
                self.last_arrival = self.now;
                self.all[index].arrived |= mask;
            } else {
                self.add(mask, pc, meet, index as u32);
            }
        }
        if self.all[index].children == 0 {
            self.all[index].arrived = 0;
            self.set_state(index, State::Ready);
        }
    }

    /// A split has reached its reconvergence point, or all of its lanes have exited.
    pub(crate) fn end(&mut self, index: usize, live: u32) {
        self.last_arrival = self.now;
        let mut index = index;
        loop {
            let split = self.all[index];
            self.set_state(index, State::Free);
            if split.parent == NONE {
                return;
            }
            let parent = split.parent as usize;
            self.all[parent].children -= 1;
            self.all[parent].arrived |= split.mask & live;
            if self.all[parent].children > 0 {
                return;
            }
            self.all[parent].arrived = 0;
            self.all[parent].mask &= live;
            if self.all[parent].mask != 0 {
                self.set_state(parent, State::Ready);
                return;
            }
            index = parent;
        }
    }
}
