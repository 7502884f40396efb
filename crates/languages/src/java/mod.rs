//! Java 17 and later, as `java File.java` or JShell runs it; a JDK, not a JRE.
//!
//! What the shim does for the code:
//!
//! * A source of classes alone is a program, if one of them has a `main`: it is compiled
//!   as `java File.java` compiles it, with its package and its own imports, and the first
//!   `main` is called, `main(String[])` before `main()`, static or not. The class path is
//!   `CLASSPATH`, or the directory.
//! * All else is a sequence of snippets: statements, expressions, declarations and
//!   imports, evaluated in order, with JShell's usual imports. The value of a
//!   last expression is the main result, as JShell shows it; a declaration has
//!   none. If all are declarations and one is a method `main`, it is called: that is how
//!   a JDK before 25 runs a source without a class.
//! * Executions that follow a program can use its classes, without its package and with
//!   static fields of their own, because JShell declares them anew. A program that uses
//!   what earlier executions declared is evaluated as snippets.
//! * What does not compile is a syntax error, with all that the compiler says;
//!   the snippets before it have run. A package that does not exist has a name of its own,
//!   `PackageNotFoundError`; jars that `CLASSPATH` names are found.
//! * An uncaught exception, of any thread, becomes an error frame with the frames
//!   that are the code's own or Java's, and exit status 1. In other threads than
//!   the first, JShell does not say which lines.
//! * `args` holds the arguments, `System.in` the input, `System.exit` ends all.
//!
//! # Start-up
//!
//! Snippets run in the same virtual machine as the compiler: JShell's own way
//! would start a second one. `java Shim.java` compiles the shim at each start,
//! which takes about as long as all the rest. A rootfs saves that by holding the
//! compiled shim, below [`DIRECTORY`], named by the source's digest:
//!
//! ```text
//! javac -d classes Shim.java
//! jar --create --file DIRECTORY/DIGEST.jar -C classes .
//! ```
//!
//! The digest is the first 16 digits of the source's SHA-256. The recipe `java`
//! does that, and has the compiler's classes in the archive that every virtual
//! machine maps at its start (class-data sharing).
//!
//! The C1 compiler and the serial collector are what starts fastest on one CPU;
//! `JDK_JAVA_OPTIONS` in the cell's environment can say otherwise
//! (`-XX:TieredStopAtLevel=4` for long computations).
//!
//! # Interrupts and variables
//!
//! SIGINT stops the code of an execution: up to Java 19 by `Thread.stop`, which later ones
//! do not have. There it interrupts what waits, and the code looks for interrupts at each
//! branch, as JShell's own local execution has it do (`LocalExecutionControl`): a loop of
//! plain arithmetic takes 1.4 times as long by that. So it does not look where no other
//! execution follows. Other threads of the program stop as well if they come to a branch in
//! that moment. A program that is run by its `main` does not look; it, and what neither
//! waits nor comes to a branch of the program's own (a long call of the library, for
//! example), has to be killed. Variables are described without calling
//! methods of the program's classes.
//!
//! # The channel
//!
//! Java opens files by name only, so the channel is two pipes, as for R; child
//! processes do not inherit them. The same names are open to the code.
//!
//! # Memory
//!
//! The heap gets what the limit leaves after a share for the virtual machine, so
//! that running out of it is an `OutOfMemoryError`. Where the machine itself
//! gets none, its last words tell.

use super::{
    Compiled, Delivery, Driver, DriverFile, Exceptions, Heap, Modules, Provider, SCRIPT, between,
    file, profile,
};
use record::Category;

const SHIM: DriverFile = file!("Shim.java");

/// Where a rootfs may have the shim compiled.
const DIRECTORY: &str = "/usr/lib/cellblock/java";

/// See the module's documentation.
pub(super) static DRIVER: Driver = Driver {
    name: "java",
    aliases: &["jshell"],
    extensions: &["java", "jsh"],
    interpreters: &[
        "/usr/bin/java",
        "/usr/local/bin/java",
        "/opt/java/bin/java",
        "/opt/java/openjdk/bin/java",
        "/usr/local/openjdk/bin/java",
    ],
    flags: &[
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xshare:auto",
        // Its files in /tmp are for tools outside.
        "-XX:-UsePerfData",
        // Not into the workspace, whose new files the record lists.
        "-XX:ErrorFile=/tmp/hs_err_pid%p.log",
        // Warnings would go to stdout.
        "-Xlog:disable",
        "-Djava.awt.headless=true",
        "-Dfile.encoding=UTF-8",
        "-Dstdout.encoding=UTF-8",
        "-Dstderr.encoding=UTF-8",
        SHIM.path,
    ],
    files: &[SHIM],
    delivery: Delivery::Channel,
    heap: Some(Heap {
        limit: heap,
        flag: Some(|mib| format!("-Xmx{mib}m")),
        besides: 64,
    }),
    compiled: Some(Compiled {
        directory: DIRECTORY,
        extension: "jar",
        arguments: |file| vec!["-cp".to_owned(), file, "Shim".to_owned()],
    }),
    profile: Some(profile!("java", "profile.toml")),
    rootfs: "java",
    exceptions: EXCEPTIONS,
    modules: Some(Modules {
        missing: &["cannot find package "],
        provider: |_, _| Some(Provider::Jar),
    }),
    missing_program: |error| between(&error.message, "Cannot run program \"", "\""),
    ..SCRIPT
};

const EXCEPTIONS: Exceptions = Exceptions {
    decisive: &[(Category::Processes, "unable to create native thread")],
    classes: &[
        (
            Category::Name,
            "NoSuchFieldError NoSuchFieldException NoSuchMethodError \
             NoSuchMethodException",
        ),
        (
            Category::Import,
            "ClassNotFoundException NoClassDefFoundError PackageNotFoundError",
        ),
        (Category::Type, "ClassCastException ArrayStoreException"),
        (
            Category::Value,
            "ArithmeticException IllegalArgumentException NumberFormatException \
             IndexOutOfBoundsException ArrayIndexOutOfBoundsException \
             StringIndexOutOfBoundsException NegativeArraySizeException \
             NoSuchElementException InputMismatchException NullPointerException \
             DateTimeParseException",
        ),
        (
            Category::File,
            "NoSuchFileException FileAlreadyExistsException \
             DirectoryNotEmptyException NotDirectoryException",
        ),
        (
            Category::Permission,
            "AccessDeniedException ReadOnlyFileSystemException AccessControlException",
        ),
        (
            Category::Network,
            "UnknownHostException ConnectException NoRouteToHostException \
             PortUnreachableException SocketException SocketTimeoutException \
             BindException HttpTimeoutException HttpConnectTimeoutException",
        ),
        (Category::Timeout, "TimeoutException"),
    ],
    messages: &[],
};

/// The compiler's classes, its code and some threads take 200 MB of their own.
fn heap(memory: u64) -> u64 {
    memory.saturating_sub(256).max(memory / 2).max(16)
}
