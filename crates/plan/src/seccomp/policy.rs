//! A policy as a person writes it, and as the compiler wants it.
//!
//! `policies/README.md` describes the format.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

pub use super::errno::Errno;
use super::{numbers, texts};

/// The policies that come with cellblock. Each may extend those before it. Their texts are files
/// of these names in `policies/seccomp/`.
pub(super) const BUILTIN: [&str; 4] = ["default", "debug", "no-unix-sockets", "strict"];

/// Calls that happen between the filter's installation and the program's first
/// instruction: execute it or report why not, and end.
pub(super) const ESSENTIAL: [&str; 3] = ["execve", "exit_group", "write"];
/// Calls that the supervisor can answer.
const ANSWERED: [&str; 1] = ["sysinfo"];
/// Calls whose memory the supervisor can count, by arguments that are in registers.
const COUNTED: [&str; 4] = ["mmap", "msgget", "semget", "shmget"];
/// Stands for the cell's id in a compiled policy, until it is known where that is compared.
pub(super) const OWN_ID: u32 = 0x7ec0_1d5e;
/// Calls that set an owner, and the argument with its uid; the gid is in the next one.
const OWNERS: [(&str, u8); 4] = [("chown", 1), ("fchown", 1), ("fchownat", 2), ("lchown", 1)];

/// Which system calls a program may make. Whatever it does not name is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// What it is for, in one sentence.
    pub description: String,
    /// What becomes of each call, where a cgroup holds every limit.
    pub rules: BTreeMap<&'static str, Rule>,
    /// Rules in place of those above, each unless a cgroup holds what it names.
    pub fallbacks: BTreeMap<&'static str, (Held, Rule)>,
    /// The text, behind those of the policies that it extends.
    pub(super) texts: Vec<String>,
}

/// A limit that a cgroup may hold. Where none does, some calls would pass it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// `memory.max`
    MemoryCgroup,
    /// `cpu.max`
    CpuCgroup,
}

/// The limits of one cell that no cgroup holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unheld {
    /// Memory.
    pub memory: bool,
    /// CPUs.
    pub cpus: bool,
}

impl Unheld {
    /// Every combination.
    pub const ALL: [Self; 4] = [
        Self::new(false, false),
        Self::new(true, false),
        Self::new(false, true),
        Self::new(true, true),
    ];

    const fn new(memory: bool, cpus: bool) -> Self {
        Self { memory, cpus }
    }

    const fn includes(self, held: Held) -> bool {
        match held {
            Held::MemoryCgroup => self.memory,
            Held::CpuCgroup => self.cpus,
        }
    }
}

impl Policy {
    /// What becomes of the call with this name where no cgroup holds the limits
    /// `unheld`; `None` means absent.
    pub fn rule_for(&self, call: &str, unheld: Unheld) -> Option<&Rule> {
        match self.fallbacks.get(call) {
            Some((held, rule)) if unheld.includes(*held) => Some(rule),
            _ => self.rules.get(call),
        }
    }
}

/// What becomes of one system call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// What the caller gets.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Why, in words.
    pub reason: String,
}

/// What the caller of a system call gets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Verdict {
    /// The call happens.
    Allow,
    /// The call happens when any of these matches; otherwise it is denied.
    AllowIf {
        /// What must hold.
        when: Vec<Alternative>,
        /// What a denied call returns.
        errno: Errno,
    },
    /// The call is denied, and the denial counted and named in the record.
    Deny {
        /// What it returns.
        errno: Errno,
    },
    /// The call is denied when any of these matches; otherwise it happens.
    DenyIf {
        /// What must not hold.
        when: Vec<Alternative>,
        /// What a denied call returns.
        errno: Errno,
    },
    /// As if the kernel had no such call: ENOSYS, as for calls that no policy
    /// names, so that libraries fall back to an older one.
    Absent,
    /// The supervisor answers the call with the cell's own values. Where it cannot, the
    /// call is denied with ENOSYS.
    Answer,
    /// The call happens. When any of these matches, or with none of them always, the supervisor
    /// first counts the memory that it makes; where the limit has no room for that, the call is
    /// denied with ENOMEM.
    Count {
        /// What makes memory that no process shows.
        when: Vec<Alternative>,
    },
    /// The call happens when the owner that it sets is the cell's own. Otherwise it does nothing:
    /// EPERM, an ordinary user's answer, or success where the cell's uid is 0.
    OwnIds,
    /// The process is killed (SIGSYS).
    Kill,
}

impl Verdict {
    /// What a call returns when it is denied, for calls that can be.
    pub fn denies_with(&self) -> Option<Errno> {
        match self {
            Self::AllowIf { errno, .. } | Self::Deny { errno } | Self::DenyIf { errno, .. } => {
                Some(*errno)
            }
            Self::Answer => Some(Errno::ENOSYS),
            Self::Count { .. } => Some(Errno::ENOMEM),
            Self::Allow | Self::Absent | Self::OwnIds | Self::Kill => None,
        }
    }
}

/// Conditions on a call's arguments, all of which must hold.
pub type Alternative = Vec<Condition>;

/// A condition on one argument: `argument & mask == value`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Which argument, from 0.
    pub arg: u8,
    /// How much of it counts. 32 for what the kernel takes as an `int`: it
    /// ignores the upper half, and so must the filter.
    pub bits: Width,
    /// The bits to compare; all of them when left out.
    #[serde(
        default,
        deserialize_with = "mask",
        skip_serializing_if = "Option::is_none"
    )]
    pub mask: Option<u64>,
    /// What they must be.
    #[serde(deserialize_with = "number")]
    pub value: u64,
    /// The condition in words.
    pub means: String,
}

/// How much of an argument counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Width {
    /// The lower half.
    Bits32,
    /// All of it.
    Bits64,
}

/// Why a policy is not sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicyError {
    /// The policy, then the rule or the call concerned.
    pub(super) operand: String,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl PolicyError {
    pub(super) fn new(operand: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            operand: operand.into(),
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The JSON document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    description: String,
    #[serde(default)]
    extends: Option<String>,
    rules: Vec<Group>,
}

/// Calls that share a rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    action: Action,
    reason: String,
    calls: Vec<String>,
    #[serde(default)]
    when: Vec<Alternative>,
    #[serde(default)]
    errno: Option<Errno>,
    /// The group applies only where no cgroup holds this.
    #[serde(default)]
    unless: Option<Held>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Action {
    Allow,
    AllowIf,
    Deny,
    DenyIf,
    Absent,
    Answer,
    Count,
    OwnIds,
    Kill,
}

/// Reads a policy, which may extend any of `bases`.
pub(super) fn parse(text: &str, bases: &[&str]) -> Result<Policy, PolicyError> {
    let document: Document = serde_json::from_str(text)
        .map_err(|error| PolicyError::new("policy", error.to_string()))?;
    let name = document.name;
    if !is_name(&name) {
        return Err(
            PolicyError::new("name", format!("{name:?} is not a policy name"))
                .hint("use 1 to 64 lower case letters, digits and hyphens"),
        );
    }
    let (mut rules, mut fallbacks, mut texts) = match &document.extends {
        None => Default::default(),
        Some(base) => {
            let base = one_of(base, bases)?;
            (base.rules, base.fallbacks, base.texts)
        }
    };
    let (fallback, usual): (Vec<_>, Vec<_>) = document
        .rules
        .into_iter()
        .enumerate()
        .partition(|(_, group)| group.unless.is_some());
    for (call, (_, rule)) in own_rules(usual)? {
        // A rule of the policy's own replaces all that it inherits for the call.
        fallbacks.remove(call);
        rules.insert(call, rule);
    }
    for (call, (unless, rule)) in own_rules(fallback)? {
        fallbacks.extend(unless.map(|held| (call, (held, rule))));
    }
    texts.push(text.to_owned());
    for call in ESSENTIAL {
        let allowed = rules.get(call).map(|rule| &rule.verdict) == Some(&Verdict::Allow);
        if !allowed || fallbacks.contains_key(call) {
            return Err(
                PolicyError::new(call, "must be allowed, whatever its arguments").hint(
                    "cellblock itself needs it to start the program, or to say why it cannot",
                ),
            );
        }
    }
    Ok(Policy {
        name,
        description: document.description,
        rules,
        fallbacks,
        texts,
    })
}

/// Reads the built-in policy of this name.
pub(super) fn builtin(name: &str) -> Result<Policy, PolicyError> {
    one_of(name, &BUILTIN)
}

/// Reads the policy of this name, which may extend those before it.
fn one_of(name: &str, policies: &[&str]) -> Result<Policy, PolicyError> {
    match policies.iter().position(|known| *known == name) {
        Some(index) => {
            let text = texts::of(name).map_err(|error| PolicyError::new(name, error))?;
            parse(&text, &policies[..index])
        }
        None => Err(PolicyError::new(name, "there is no such seccomp policy")
            .hint(format!("one of: {}", policies.join(", ")))),
    }
}

/// Rules by call, each with what it applies without.
type OwnRules = BTreeMap<&'static str, (Option<Held>, Rule)>;

/// The rules of some groups of one document, each call at most once.
fn own_rules(groups: Vec<(usize, Group)>) -> Result<OwnRules, PolicyError> {
    let mut rules = BTreeMap::new();
    for (index, group) in groups {
        let place = format!("rules[{index}]");
        if group.reason.trim().is_empty() {
            return Err(PolicyError::new(place, "a rule needs a reason"));
        }
        if group.calls.is_empty() {
            return Err(PolicyError::new(place, "a rule needs calls"));
        }
        let verdict = verdict(&place, group.action, group.when, group.errno)?;
        for call in &group.calls {
            let known = numbers::known(call).ok_or_else(|| unknown(&place, call))?;
            if verdict == Verdict::Answer && !ANSWERED.contains(&known) {
                let message = format!("cellblock cannot answer {known}");
                let hint = format!("\"answer\" goes with: {}", ANSWERED.join(", "));
                return Err(PolicyError::new(place, message).hint(hint));
            }
            if matches!(verdict, Verdict::Count { .. }) && !COUNTED.contains(&known) {
                let message = format!("cellblock cannot count the memory of {known}");
                let hint = format!("\"count\" goes with: {}", COUNTED.join(", "));
                return Err(PolicyError::new(place, message).hint(hint));
            }
            if verdict == Verdict::OwnIds && owner_of(known).is_none() {
                let message = format!("{known} sets no owner");
                let hint = format!(
                    "\"own_ids\" goes with: {}",
                    OWNERS.map(|(name, _)| name).join(", ")
                );
                return Err(PolicyError::new(place, message).hint(hint));
            }
            let rule = Rule {
                verdict: verdict.clone(),
                reason: group.reason.clone(),
            };
            if rules.insert(known, (group.unless, rule)).is_some() {
                return Err(PolicyError::new(
                    place,
                    format!("{known} has a rule already"),
                ));
            }
        }
    }
    Ok(rules)
}

/// The argument of a call that has the uid of a new owner.
pub(super) fn owner_of(call: &str) -> Option<u8> {
    let found = OWNERS.iter().find(|(name, _)| *name == call);
    found.map(|(_, argument)| *argument)
}

fn unknown(place: &str, call: &str) -> PolicyError {
    let error = PolicyError::new(place, format!("there is no system call {call:?}"));
    match numbers::nearest(call) {
        Some(name) => error.hint(format!("did you mean {name:?}?")),
        None => error,
    }
}

fn verdict(
    place: &str,
    action: Action,
    when: Vec<Alternative>,
    errno: Option<Errno>,
) -> Result<Verdict, PolicyError> {
    let conditional = matches!(action, Action::AllowIf | Action::DenyIf);
    if conditional == when.is_empty() && action != Action::Count {
        let message = "\"when\" goes with allow_if, deny_if and count, and the first two with it";
        return Err(PolicyError::new(place, message));
    }
    if errno.is_some() && !conditional && action != Action::Deny {
        let message = "\"errno\" goes with deny, deny_if and allow_if only";
        return Err(PolicyError::new(place, message));
    }
    for (index, alternative) in when.iter().enumerate() {
        let place = format!("{place}.when[{index}]");
        if alternative.is_empty() {
            return Err(PolicyError::new(place, "an alternative needs conditions"));
        }
        alternative
            .iter()
            .try_for_each(|condition| condition.check(&place))?;
    }
    let errno = errno.unwrap_or_default();
    Ok(match action {
        Action::Allow => Verdict::Allow,
        Action::AllowIf => Verdict::AllowIf { when, errno },
        Action::Deny => Verdict::Deny { errno },
        Action::DenyIf => Verdict::DenyIf { when, errno },
        Action::Absent => Verdict::Absent,
        Action::Answer => Verdict::Answer,
        Action::Count => Verdict::Count { when },
        Action::OwnIds => Verdict::OwnIds,
        Action::Kill => Verdict::Kill,
    })
}

impl Condition {
    /// Refuses a condition that can never hold.
    fn check(&self, place: &str) -> Result<(), PolicyError> {
        let all = match self.bits {
            Width::Bits32 => u64::from(u32::MAX),
            Width::Bits64 => u64::MAX,
        };
        let mask = self.mask.unwrap_or(all);
        if self.arg > 5 {
            let message = format!("argument {} does not exist: they are 0 to 5", self.arg);
            return Err(PolicyError::new(place, message));
        }
        if mask & !all != 0 {
            let message = format!("the mask {mask:#x} has bits that do not count");
            return Err(PolicyError::new(place, message).hint("write \"bits\": 64"));
        }
        let words = [self.value as u32, (self.value >> 32) as u32];
        if words.contains(&OWN_ID) {
            let message = format!("{OWN_ID:#x} is reserved: it stands for the cell's id");
            return Err(PolicyError::new(place, message));
        }
        if self.value & !mask != 0 {
            let message = format!(
                "{:#x} has bits outside of {mask:#x}: it never holds",
                self.value
            );
            return Err(PolicyError::new(place, message));
        }
        Ok(())
    }
}

impl TryFrom<u8> for Width {
    type Error = String;

    fn try_from(bits: u8) -> Result<Self, String> {
        match bits {
            32 => Ok(Self::Bits32),
            64 => Ok(Self::Bits64),
            _ => Err(format!("bits {bits}: either 32 or 64")),
        }
    }
}

impl From<Width> for u8 {
    fn from(width: Width) -> Self {
        match width {
            Width::Bits32 => 32,
            Width::Bits64 => 64,
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// A number, or a string with one in hexadecimal, which JSON itself lacks.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a number, or a string such as \"0x5412\""
    )]
    enum Form {
        Decimal(u64),
        Hexadecimal(String),
    }
    match Form::deserialize(deserializer)? {
        Form::Decimal(number) => Ok(number),
        Form::Hexadecimal(text) => text
            .strip_prefix("0x")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| {
                serde::de::Error::custom(format!("{text:?} is not hexadecimal, such as \"0x5412\""))
            }),
    }
}

fn mask<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    number(deserializer).map(Some)
}
