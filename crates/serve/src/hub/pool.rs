//! Cells that wait for calls. One that ran code never returns to the pool.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::value::{RawValue, to_raw_value};
use supervisor::{Open, TemplateInUse};

use super::requests::Request;
use super::session::{Kind, Session};
use super::status::is_of;
use super::{Hub, LinkId, Party};
use crate::Warm;
use crate::protocol::{PoolStatus, Start};

/// The first and the longest wait after a cell that could not be opened.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How long a pool that is at least half full is not refilled after a cell was taken from
/// it, while a call is executed: making a cell would slow that call down.
const PATIENCE: Duration = Duration::from_millis(50);

/// The request of a cell that waits for any program.
const ANY_PROGRAM: &str = r#"{"argv":["true"]}"#;

/// Cells of one kind.
#[derive(Debug)]
pub(super) struct Pool {
    warm: Warm,
    /// Calls that got a cell, and those that found none, by their party.
    taken: BTreeMap<Party, (u64, u64)>,
    error: Option<String>,
    back_off: Duration,
    not_before: Option<Instant>,
    /// When it has waited long enough for calls to end.
    busy_until: Option<Instant>,
}

impl Pool {
    pub(super) fn new(warm: &Warm) -> Self {
        Self {
            warm: warm.clone(),
            taken: BTreeMap::new(),
            error: None,
            back_off: BACK_OFF.0,
            not_before: None,
            busy_until: None,
        }
    }

    /// Whether its cells wait for code in this language.
    fn is_for(&self, language: Option<&str>) -> bool {
        language.is_some() && self.warm.language.as_deref() == language
    }

    /// How its cells are opened.
    fn opening(&self) -> Option<Open> {
        let request = match &self.warm.language {
            Some(language) => to_raw_value(&record::object! {"language": language}).ok()?,
            None => RawValue::from_string(ANY_PROGRAM.to_owned()).ok()?,
        };
        Some(Open {
            request,
            lasting: self.warm.language.is_some(),
            ready: self.warm.language.is_some(),
            forked: self.warm.forked,
            blank: self.warm.language.is_none(),
            ..Open::default()
        })
    }
}

impl Hub {
    /// A waiting cell that can serve a request, if there is one: rather one with an
    /// interpreter than a blank one. An interpreter needs code, now or later.
    pub(super) fn take_warm(
        &mut self,
        request: &Request,
        has_code: bool,
        party: Party,
    ) -> Option<(LinkId, Start)> {
        let language = request.plain_language().filter(|_| has_code);
        let ready = self.pools.iter().position(|pool| pool.is_for(language));
        // Languages have limits of their own.
        let fits_blank =
            request.parsed.argv.is_some() && request.fits_blank(self.settings.named_hosts);
        let is_blank = |pool: &Pool| pool.warm.language.is_none() && fits_blank;
        let blank = self.pools.iter().position(is_blank);
        if let Some(link) = ready.and_then(|index| self.take_from(index, party)) {
            let session = self.sessions.get(&link);
            let start = match session.is_some_and(|session| session.forked) {
                true => Start::Forked,
                false => Start::Ready,
            };
            return Some((link, start));
        }
        let link = blank.and_then(|index| self.take_from(index, party))?;
        Some((link, Start::Blank))
    }

    /// A waiting interpreter that was forked from a template: from that with this number,
    /// if one is given.
    pub(super) fn take_forked(
        &mut self,
        request: &Request,
        template: Option<u64>,
        party: Party,
    ) -> Option<LinkId> {
        let language = request.plain_language();
        let is_like = |session: &Session| {
            session.opened.is_some()
                && session.forked
                && (template.is_none() || session.template == template)
        };
        let mut pools = 0..self.pools.len();
        pools.find_map(|index| {
            let pool = self.pools.get(index)?;
            let pool = Some(pool).filter(|pool| pool.is_for(language))?;
            let found = pool.warm.forked.then(|| self.waiting_in(index))?;
            let link = found.into_iter().find(|(_, session)| is_like(session))?.0;
            let busy_until = self.now + PATIENCE;
            let pool = self.pools.get_mut(index)?;
            pool.busy_until = Some(busy_until);
            pool.taken.entry(party).or_default().0 += 1;
            Some(link)
        })
    }

    /// Whether the server has templates, from which cells of this request can be forked.
    pub(super) fn forks(&self, request: &Request) -> bool {
        let language = request.plain_language();
        let is_like = |pool: &Pool| pool.warm.forked && pool.is_for(language);
        self.pools.iter().any(is_like)
    }

    /// How a cell is opened for a request whose pool is empty, where its interpreter can
    /// be forked for it.
    pub(super) fn forking(&self, request: &Request, has_code: bool) -> Option<Open> {
        let language = request.plain_language().filter(|_| has_code);
        let fits = |pool: &&Pool| pool.warm.forked && pool.is_for(language);
        let pool = self.pools.iter().find(fits)?;
        Some(Open {
            awaited: true,
            ..pool.opening()?
        })
    }

    fn take_from(&mut self, index: usize, party: Party) -> Option<LinkId> {
        let found = self
            .waiting_in(index)
            .find(|(_, session)| session.opened.is_some());
        let link = found.map(|(link, _)| link);
        let busy_until = self.now + PATIENCE;
        let pool = self.pools.get_mut(index)?;
        pool.busy_until = Some(busy_until);
        let taken = pool.taken.entry(party).or_default();
        match link {
            Some(_) => taken.0 += 1,
            None => taken.1 += 1,
        }
        link
    }

    fn waiting_in(&self, index: usize) -> impl Iterator<Item = (LinkId, &Session)> {
        let is_in = move |session: &Session| session.kind == Kind::Warm(index) && !session.ending;
        let sessions = self
            .sessions
            .iter()
            .filter(move |(_, session)| is_in(session));
        sessions.map(|(link, session)| (*link, session))
    }

    /// The memory limits of cells that wait, and the memory of templates.
    pub(super) fn warm_memory(&self) -> u64 {
        let is_waiting = |session: &&Session| session.is_warm() && !session.ending;
        let cells = self.sessions.values().filter(is_waiting);
        let cells = cells.map(|session| session.memory);
        let templates = self.templates.iter().map(|template| template.memory);
        cells.chain(templates).fold(0, u64::saturating_add)
    }

    /// The templates that there are now.
    pub fn set_templates(&mut self, templates: Vec<TemplateInUse>) {
        self.templates = templates;
    }

    /// Ends cells that wait while there is not enough memory for all: another template takes
    /// as much as the one before it, which contexts may still need.
    fn shed(&mut self) {
        let Some(most) = self.settings.warm_memory else {
            return;
        };
        while self.warm_memory() > most {
            let is_waiting = |session: &Session| session.is_warm() && !session.ending;
            let mut all = self.sessions.iter().rev();
            let found = all.find(|(_, session)| is_waiting(session) && session.memory > 0);
            let Some(link) = found.map(|(link, _)| *link) else {
                return;
            };
            self.end_session(link);
        }
    }

    /// Opens cells for the pools, one at a time in each, while no call waits.
    pub(super) fn refill(&mut self) {
        self.shed();
        if self.draining.is_some() || self.queued(None) > 0 {
            return;
        }
        if !self.executes() {
            for pool in &mut self.pools {
                pool.busy_until = None;
            }
        }
        for index in 0..self.pools.len() {
            if self.lacks(index) {
                self.open_warm(index);
            }
        }
    }

    fn lacks(&self, index: usize) -> bool {
        let Some(pool) = self.pools.get(index) else {
            return false;
        };
        let is_opening = self
            .waiting_in(index)
            .any(|(_, session)| session.opened.is_none());
        let is_late = pool.not_before.is_none_or(|when| when <= self.now);
        let count = self.waiting_in(index).count();
        let is_postponed =
            pool.busy_until.is_some_and(|until| until > self.now) && count * 2 >= pool.warm.count;
        let memory = self.settings.cell_memory.unwrap_or(0);
        let committed = self.warm_memory().saturating_add(memory);
        let fits = self
            .settings
            .warm_memory
            .is_none_or(|most| committed <= most);
        !is_opening && is_late && !is_postponed && fits && count < pool.warm.count
    }

    /// Whether a supervisor works for a call.
    fn executes(&self) -> bool {
        let works = |session: &Session| !session.is_warm() && session.execution().is_some();
        self.sessions.values().any(works)
    }

    fn open_warm(&mut self, index: usize) {
        let Some(pool) = self.pools.get(index) else {
            return;
        };
        let Some(open) = pool.opening() else {
            return;
        };
        let memory = self.settings.cell_memory.unwrap_or(0);
        let session = Session::new(Kind::Warm(index), memory, open);
        let link = self.begin(session);
        self.pump(link);
    }

    /// A cell for a pool could not be opened, or ended before it was used.
    pub(super) fn warm_failed(&mut self, index: usize, why: &str) {
        let now = self.now;
        if let Some(pool) = self.pools.get_mut(index) {
            pool.error = Some(why.to_owned());
            pool.not_before = Some(now + pool.back_off);
            pool.back_off = (pool.back_off * 2).min(BACK_OFF.1);
        }
    }

    /// A cell for a pool waits.
    pub(super) fn warm_opened(&mut self, index: usize) {
        if let Some(pool) = self.pools.get_mut(index) {
            (pool.error, pool.not_before, pool.back_off) = (None, None, BACK_OFF.0);
        }
    }

    /// When a pool may try again.
    pub(super) fn next_refill(&self) -> Option<Instant> {
        let later = |pool: &Pool| [pool.not_before, pool.busy_until];
        let later = self.pools.iter().flat_map(later).flatten();
        later.filter(|when| *when > self.now).min()
    }

    /// All pools, with the calls of all parties or of one.
    pub(super) fn pool_status(&self, of: Option<Party>) -> Vec<PoolStatus> {
        let status = |(index, pool): (usize, &Pool)| {
            let ready = self
                .waiting_in(index)
                .filter(|(_, session)| session.opened.is_some());
            let ready = ready.count();
            let taken = pool.taken.iter();
            let taken = taken.filter(|(party, _)| is_of(of, Some(**party)));
            let (hits, misses) = taken.fold((0, 0), |sum, (_, own)| (sum.0 + own.0, sum.1 + own.1));
            PoolStatus {
                name: pool
                    .warm
                    .language
                    .clone()
                    .unwrap_or_else(|| "blank".to_owned()),
                wanted: pool.warm.count,
                ready,
                opening: self.waiting_in(index).count() - ready,
                hits,
                misses,
                error: pool.error.clone(),
            }
        };
        self.pools.iter().enumerate().map(status).collect()
    }
}
