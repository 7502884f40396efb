//! The table of all tests, in the order in which they run.

use super::attack::Attack;
use super::{Need, Scene, Suite};

/// A row of the table.
pub(super) struct Row<'a> {
    pub(super) name: String,
    pub(super) needs: &'static [Need],
    pub(super) body: Body<'a>,
}

pub(super) enum Body<'a> {
    Attack(&'a Attack),
    Scene(&'a Scene),
}

impl Row<'_> {
    /// Whether only root can show what this test is about.
    pub(super) fn is_roots(&self) -> bool {
        match self.body {
            Body::Attack(attack) => attack.is_live_for_root_only(),
            Body::Scene(scene) => scene.needs.contains(&Need::Root),
        }
    }
}

pub(super) fn table<'a>(suites: &[&'a Suite]) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for suite in suites {
        rows.extend(suite.scenes.iter().map(|scene| Row {
            name: format!("{}/{}", suite.name, scene.name),
            needs: scene.needs,
            body: Body::Scene(scene),
        }));
        rows.extend(suite.attacks.iter().map(|attack| Row {
            name: format!("{}/{}", suite.name, attack.name),
            needs: &[],
            body: Body::Attack(attack),
        }));
    }
    rows
}
