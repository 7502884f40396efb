//! `cellblock rootfs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use cell::spec::units::Bytes;

/// Prepared root filesystems: build, list, show, verify, import, remove
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
    /// cellblock/rootfs in $XDG_DATA_HOME or ~/.local/share; behind the last
    /// two, /var/lib/cellblock/rootfs is read as well]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

/// What `cellblock rootfs` does.
#[derive(Subcommand, Debug)]
pub enum RootfsAction {
    /// Build a rootfs from a recipe
    ///
    /// Packages come from Debian, PyPI and npm by their usual tools, each of
    /// which runs in a cell; nothing needs root. What was fetched is kept in
    /// cellblock in $XDG_CACHE_HOME or ~/.cache, so an interrupted build goes on
    /// where it was. The recipe's smoke test must succeed before the rootfs
    /// enters the store.
    Build(Build),
    /// Derive a rootfs from another one by adding packages
    ///
    /// Files are shared with the one that it derives from, so this takes
    /// seconds. Cells that run keep the tree that they have.
    Add(Add),
    /// List the built-in recipes
    Recipes,
    /// List the rootfs that there are
    List {
        /// Where they are.
        #[command(flatten)]
        store: InStore,
        /// Print their manifests as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the content of a rootfs: interpreters, packages, size, digest
    Show {
        /// Name of the rootfs
        #[arg(value_name = "NAME")]
        name: String,
        /// Where it is.
        #[command(flatten)]
        store: InStore,
        /// Print its manifest as JSON
        #[arg(long)]
        json: bool,
    },
    /// Read all of a rootfs and name everything that is not as it was made
    ///
    /// Content, modes and links are compared with the listing that was written
    /// when the rootfs was made, and that with the digest in its manifest. The
    /// exit status is 1 when something differs.
    Verify {
        /// Names of rootfs
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Where they are.
        #[command(flatten)]
        store: InStore,
        /// Print the differences as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a rootfs from an image, an archive or a directory
    ///
    /// SOURCE is an OCI image layout (as `skopeo copy docker://… oci:DIR`
    /// makes), what `docker save` writes, a tar archive of a root filesystem,
    /// plain or in gzip or zstd, or a directory. What has no place in a rootfs
    /// is left out and named: device nodes, paths and links that lead outside,
    /// bits that give rights away. A rootfs that has the name already is
    /// replaced when all is done; cells that run on it keep it.
    Import {
        /// Name that the rootfs gets
        #[arg(value_name = "NAME")]
        name: String,
        /// Image layout, archive, directory, or - for an archive on standard
        /// input
        #[arg(value_name = "SOURCE")]
        source: PathBuf,
        /// Where it goes.
        #[command(flatten)]
        store: InStore,
        /// Which image, where SOURCE has several: its tag or reference
        #[arg(long = "ref", value_name = "REF")]
        reference: Option<String>,
        /// Size that it may unpack to [default: 16G]
        #[arg(long, value_name = "SIZE")]
        max_size: Option<Bytes>,
        /// Print its manifest, and what was left out, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a rootfs; cells that run on it keep it until they end
    Remove {
        /// Names of rootfs
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Where they are.
        #[command(flatten)]
        store: InStore,
    },
}

/// `cellblock rootfs build`
#[derive(Args, Clone, Debug)]
pub struct Build {
    /// Name of a built-in recipe (see `cellblock rootfs recipes`), or the path of
    /// a recipe's folder with a `/`
    #[arg(value_name = "RECIPE")]
    pub recipe: String,
    /// Name of the rootfs [default: the recipe's]
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
    /// Where it goes.
    #[command(flatten)]
    pub store: InStore,
    /// Take exactly the packages that the recipe's lock.toml names
    #[arg(long, conflicts_with = "update_lock")]
    pub locked: bool,
    /// Write the recipe's lock.toml; only for a recipe given by its path
    #[arg(long)]
    pub update_lock: bool,
    /// Build every layer anew instead of reusing those in the store
    #[arg(long)]
    pub fresh: bool,
    /// Print what would be fetched and its size, and build nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
}

/// `cellblock rootfs add`
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "cellblock rootfs add [OPTIONS] NAME <--pip PKG… | --npm PKG… | --apt PKG…>"
)]
pub struct Add {
    /// Rootfs to derive from
    #[arg(value_name = "NAME")]
    pub base: String,
    /// Name of the new one [default: it takes the place of NAME]
    #[arg(long = "as", value_name = "NEW")]
    pub name: Option<String>,
    /// Where it goes.
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
