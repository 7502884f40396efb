//! `cellblock rootfs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use spec::units::Bytes;

/// Prepared root filesystems: build, list, choose, show, verify, import, remove
#[derive(Args, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Rootfs {
    /// What to do.
    #[command(subcommand)]
    pub action: RootfsAction,
}

/// Which store is meant.
#[derive(Args, Clone, Debug, Default)]
pub struct InStore {
    /// Store of prepared rootfs [default: $CELLBLOCK_STORE, or
    /// cellblock/rootfs in $XDG_DATA_HOME or ~/.local/share; after the last
    /// two, /var/lib/cellblock/rootfs is searched as well]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

/// What `cellblock rootfs` does.
#[derive(Subcommand, Debug)]
pub enum RootfsAction {
    /// Build a rootfs from a recipe
    ///
    /// Packages come from Debian, PyPI and npm through their usual tools, each of
    /// which runs in a cell; nothing needs root. Fetched files are kept in
    /// cellblock in $XDG_CACHE_HOME or ~/.cache, so an interrupted build
    /// continues from there. The recipe's smoke tests must succeed before the
    /// rootfs enters the store.
    Build(Build),
    /// Derive a rootfs from another one by adding packages
    ///
    /// The new rootfs shares the files of its base, so this takes seconds.
    /// Running cells keep their tree.
    Add(Add),
    /// List the built-in recipes
    Recipes,
    /// List the rootfs in the store
    List {
        /// The store to read.
        #[command(flatten)]
        store: InStore,
        /// Print their manifests as JSON
        #[arg(long)]
        json: bool,
    },
    /// Choose the rootfs that a language has by default, or show it
    ///
    /// Without a choice, a language has its usual rootfs: python, node, r, java or
    /// shell; then a wider recipe that the store has, such as python-data or full;
    /// then the host's files. The choice stays with the store, and the record of
    /// each run says which rootfs it had.
    Default {
        /// Language
        #[arg(value_name = "LANGUAGE")]
        language: Option<String>,
        /// Name of a rootfs that has the language, or auto to withdraw the
        /// choice
        #[arg(value_name = "NAME", requires = "language")]
        name: Option<String>,
        /// The store to write.
        #[command(flatten)]
        store: InStore,
    },
    /// Show the content of a rootfs: interpreters, packages, size, digest
    Show {
        /// Name of the rootfs
        #[arg(value_name = "NAME")]
        name: String,
        /// The store to read.
        #[command(flatten)]
        store: InStore,
        /// Print its manifest as JSON
        #[arg(long)]
        json: bool,
    },
    /// Read all of a rootfs and list every change since it was made
    ///
    /// Content, modes and links are compared with the rootfs's listing, and the
    /// listing with the digest in its manifest. The exit status is 1 if anything
    /// differs.
    Verify {
        /// Names of rootfs
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// The store to read.
        #[command(flatten)]
        store: InStore,
        /// Print the differences as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a rootfs from an image, an archive or a directory
    ///
    /// SOURCE is an OCI image layout (as `skopeo copy docker://… oci:DIR`
    /// makes), the output of `docker save`, a tar archive of a root filesystem,
    /// plain or in gzip or zstd, or a directory. Links in the paths of entries
    /// lead where they lead inside a container, never outside of the rootfs.
    /// Entries that a rootfs must not have are left out and named: device nodes,
    /// named pipes, sockets. Set-user-ID bits are cleared. An entry that has no
    /// place fails the import: a path with `..` or with links in a circle, a hard
    /// link to no earlier file. An existing rootfs of this name is replaced at
    /// the end; cells that run on it keep it.
    Import {
        /// Name of the new rootfs
        #[arg(value_name = "NAME")]
        name: String,
        /// Image layout, archive, directory, or - for an archive on standard
        /// input
        #[arg(value_name = "SOURCE")]
        source: PathBuf,
        /// The store to write.
        #[command(flatten)]
        store: InStore,
        /// The image to import if SOURCE has several: its tag or reference
        #[arg(long = "ref", value_name = "REF")]
        reference: Option<String>,
        /// Maximum disk space to write [default: 16G]
        ///
        /// It counts everything that the import writes, in blocks of 4096 bytes: the files
        /// of all layers, directories, the listing, and the copy of an image that must be
        /// decompressed to a file.
        #[arg(long, value_name = "SIZE")]
        max_size: Option<Bytes>,
        /// Leave out and name entries that have no place, instead of failing
        #[arg(long)]
        skip_unplaced: bool,
        /// Print its manifest and the entries that were left out as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a rootfs; cells that run on it keep it until they end
    Remove {
        /// Names of rootfs
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// The store to read.
        #[command(flatten)]
        store: InStore,
    },
}

/// `cellblock rootfs build`
#[derive(Args, Debug)]
pub struct Build {
    /// Name of a built-in recipe (see `cellblock rootfs recipes`), or the path of
    /// a recipe's folder with a `/`
    #[arg(value_name = "RECIPE")]
    pub recipe: String,
    /// Name of the rootfs [default: the recipe's]
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
    /// The store to write.
    #[command(flatten)]
    pub store: InStore,
    /// Install exactly the packages in the recipe's lock.toml
    #[arg(long, conflicts_with = "update_lock")]
    pub locked: bool,
    /// Write the recipe's lock.toml; only for a recipe given by its path
    #[arg(long)]
    pub update_lock: bool,
    /// Build every layer anew instead of reusing those in the store
    #[arg(long)]
    pub fresh: bool,
    /// Print the files to fetch and their sizes, and build nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
}

/// `cellblock rootfs add`
#[derive(Args, Debug)]
#[command(
    override_usage = "cellblock rootfs add [OPTIONS] NAME <--pip PKG… | --npm PKG… | --apt PKG…>"
)]
pub struct Add {
    /// Rootfs to derive from
    #[arg(value_name = "NAME")]
    pub base: String,
    /// Name of the new rootfs [default: it replaces NAME]
    #[arg(long = "as", value_name = "NEW")]
    pub name: Option<String>,
    /// The store to write.
    #[command(flatten)]
    pub store: InStore,
    /// Packages of PyPI, as pip takes them: wheels only
    #[arg(long, value_name = "PKG", num_args = 1.., required_unless_present_any = ["npm", "apt"])]
    pub pip: Vec<String>,
    /// Packages of npm's registry, as npm takes them; their scripts are not run
    #[arg(long, value_name = "PKG", num_args = 1..)]
    pub npm: Vec<String>,
    /// Packages of Debian; their scripts are not run
    #[arg(long, value_name = "PKG", num_args = 1..)]
    pub apt: Vec<String>,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
}
