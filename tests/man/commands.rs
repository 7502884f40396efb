//! Pages of the commands, from their declarations.

use std::collections::BTreeMap;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use super::prose::{paragraphs, words};

/// Pages of all commands: their files' names and texts.
pub(crate) fn pages() -> BTreeMap<String, String> {
    let mut root = cellblock::cli::command();
    root.build();
    let mut pages = BTreeMap::new();
    add(&mut pages, &root, "cellblock");
    pages
}

fn add(pages: &mut BTreeMap<String, String>, command: &Command, name: &str) {
    pages.insert(format!("{name}.1"), page(command, name));
    // `plan run` takes what `run` takes; its page would say nothing more.
    if name == "cellblock-plan" {
        return;
    }
    for inner in command.get_subcommands() {
        add(pages, inner, &format!("{name}-{}", inner.get_name()));
    }
}

fn page(command: &Command, name: &str) -> String {
    let source = concat!("cellblock ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone().display_name(name.to_owned()))
        .title(name)
        .section("1")
        .source(source)
        .manual("cellblock");
    let mut text = Vec::new();
    man.render_title(&mut text).unwrap();
    man.render_name_section(&mut text).unwrap();
    text.extend(synopsis(command, name).into_bytes());
    man.render_description_section(&mut text).unwrap();
    text.extend(extra(name).into_bytes());
    man.render_options_section(&mut text).unwrap();
    if name != "cellblock-plan" && command.has_subcommands() {
        let commands = command.clone().subcommand_help_heading("COMMANDS");
        let commands = commands.display_name(name.to_owned());
        Man::new(commands)
            .render_subcommands_section(&mut text)
            .unwrap();
    }
    text.extend(behind(name).into_bytes());
    // Each part of clap_mangen's begins with the same definition.
    let text = String::from_utf8(text).unwrap();
    let (definition, _) = text.split_once(".TH").unwrap();
    format!("{definition}{}", text.replace(definition, ""))
}

/// One line of usage each, as `--help` has them: all options by name would be
/// half a page.
fn synopsis(command: &Command, name: &str) -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let usages: Vec<String> = match name {
        "cellblock-plan" => vec![
            "cellblock plan run [OPTIONS] [FILE | -c CODE | -] [ARGS]...".to_owned(),
            "cellblock plan exec [OPTIONS] -- PROG [ARGS]...".to_owned(),
        ],
        _ => {
            let usage = command
                .clone()
                .bin_name(name.replace('-', " "))
                .render_usage();
            let usage = usage.to_string();
            vec![usage.trim_start_matches("Usage: ").to_owned()]
        }
    };
    for (index, usage) in usages.iter().enumerate() {
        if index > 0 {
            roff.control("br", []);
        }
        let spoken = name.replace('-', " ");
        let rest = usage.strip_prefix(&spoken).unwrap_or(usage);
        roff.text([bold(spoken.as_str()), roman(" "), italic(rest.trim_start())]);
    }
    roff.to_roff()
}

/// The part of a command's description that `--help` leaves out.
fn extra(name: &str) -> String {
    let mut roff = Roff::new();
    if name == "cellblock-plan" {
        roff.control("PP", []);
        words(
            &mut roff,
            "The options are those of cellblock-run(1) and cellblock-exec(1).",
        );
    }
    roff.to_roff()
}

/// Sections behind the options.
fn behind(name: &str) -> String {
    let mut roff = Roff::new();
    let status = match name {
        "cellblock" => Some(include_str!("cellblock-status.txt")),
        "cellblock-run" | "cellblock-exec" => Some(include_str!("run-status.txt")),
        "cellblock-rootfs-verify" => Some(
            "0 when all is as it was made, 1 when something differs, 125 when it cannot be told.",
        ),
        "cellblock-policy-check" => Some("0 when the policy is sound, 1 when it is not."),
        _ => None,
    };
    if let Some(status) = status {
        roff.control("SH", ["EXIT STATUS"]);
        paragraphs(&mut roff, status);
    }
    if name == "cellblock" {
        roff.control("SH", ["QUANTITIES"]);
        paragraphs(&mut roff, include_str!("cellblock-quantities.txt"));
    }
    if matches!(name, "cellblock-run" | "cellblock-exec") {
        roff.control("SH", ["FILES IN AND OUT"]);
        paragraphs(&mut roff, include_str!("run-files.txt"));
    }
    let examples = match name {
        "cellblock-run" => Some(include_str!("run-examples.txt")),
        "cellblock-exec" => Some(include_str!("exec-examples.txt")),
        _ => None,
    };
    if let Some(examples) = examples {
        roff.control("SH", ["EXAMPLES"]);
        paragraphs(&mut roff, examples);
    }
    roff.control("SH", ["SEE ALSO"]);
    let also = match name {
        "cellblock" => "cellblock-policy(5), cellblock-record(5), cellblock-events(5)",
        "cellblock-run" => {
            "cellblock(1), cellblock-exec(1), cellblock-plan(1), cellblock-policy(5), cellblock-request(5), cellblock-record(5), cellblock-events(5)"
        }
        "cellblock-exec" => {
            "cellblock(1), cellblock-run(1), cellblock-plan(1), cellblock-policy(5), cellblock-request(5), cellblock-record(5), cellblock-events(5)"
        }
        "cellblock-show" => "cellblock(1), cellblock-run(1), cellblock-record(5)",
        "cellblock-rootfs-add" | "cellblock-rootfs-build" | "cellblock-rootfs-recipes" => {
            "cellblock(1), cellblock-rootfs(1), cellblock-run(1), cellblock-recipe(5)"
        }
        name if name.starts_with("cellblock-rootfs-") => {
            "cellblock(1), cellblock-rootfs(1), cellblock-run(1)"
        }
        name if name.starts_with("cellblock-policy") => "cellblock(1), cellblock-policy(5)",
        _ => "cellblock(1)",
    };
    words(&mut roff, also);
    roff.to_roff()
}
