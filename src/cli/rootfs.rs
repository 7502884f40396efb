//! `cellblock rootfs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::spec::units::Bytes;

/// Prepared root filesystems: list, show, verify, import and remove them
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
    /// List the rootfs that there are
    List {
        /// Where they are.
        #[command(flatten)]
        store: InStore,
        /// Print their manifests as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what is in a rootfs: interpreters, packages, size, digest
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
