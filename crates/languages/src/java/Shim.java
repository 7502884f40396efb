// Runs the code of one request after the other in this same process: a program by its
// `main`, all else in JShell. It is one file, since Java 17 starts no program of several.

import com.sun.source.tree.ArrayTypeTree;
import com.sun.source.tree.ClassTree;
import com.sun.source.tree.CompilationUnitTree;
import com.sun.source.tree.MethodTree;
import com.sun.source.tree.VariableTree;
import com.sun.source.util.JavacTask;
import com.sun.source.util.Trees;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.net.MalformedURLException;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.Diagnostic;
import javax.tools.DiagnosticCollector;
import javax.tools.FileObject;
import javax.tools.ForwardingJavaFileManager;
import javax.tools.JavaFileManager;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.MethodSnippet;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.SourceCodeAnalysis.Completeness;
import jdk.jshell.UnresolvedReferenceException;
import jdk.jshell.execution.DirectExecutionControl;
import jdk.jshell.execution.LoaderDelegate;
import jdk.jshell.execution.LocalExecutionControl;
import jdk.jshell.spi.ExecutionControl;
import jdk.jshell.spi.ExecutionControlProvider;
import jdk.jshell.spi.ExecutionEnv;

final class Shim {
    /** `java Shim.java 3` serves the requests that come from descriptor 3, and writes
     * frames to descriptor 4. */
    public static void main(String[] args) throws IOException {
        new Session(new Channel(Integer.parseInt(args[0]))).serve();
    }
}

/** The channel to the supervisor. Its messages are described in
 * crates/languages/src/frames/mod.rs. */
final class Channel {
    private final DataInputStream requests;
    private final String frames;
    private String execution = "1";

    Channel(int descriptor) throws IOException {
        requests = new DataInputStream(new FileInputStream("/proc/self/fd/" + descriptor));
        frames = "/proc/self/fd/" + (descriptor + 1);
    }

    /** The next request, each key with its values; null at the end. */
    Map<String, List<byte[]>> receive() throws IOException {
        int left;
        try {
            left = requests.readInt();
        } catch (EOFException end) {
            return null;
        }
        var request = new HashMap<String, List<byte[]>>();
        while (left > 0) {
            requests.readByte();
            byte[] key = new byte[requests.readUnsignedByte()];
            byte[] value = new byte[requests.readInt()];
            requests.readFully(key);
            requests.readFully(value);
            left -= 6 + key.length + value.length;
            request.computeIfAbsent(utf8(key), any -> new ArrayList<>()).add(value);
        }
        execution = utf8(request.get("execution").get(0));
        return request;
    }

    static String utf8(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    String execution() {
        return execution;
    }

    Frame frame(String kind) {
        return new Frame().add("kind", kind).add("execution", execution);
    }

    final class Frame {
        private final ByteArrayOutputStream fields = new ByteArrayOutputStream();

        Frame add(String key, String value) {
            byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
            fields.write('t');
            fields.write(key.length());
            number(fields, bytes.length);
            fields.writeBytes(key.getBytes(StandardCharsets.US_ASCII));
            fields.writeBytes(bytes);
            return this;
        }

        /** Writes it; the pipe is open for no longer than that. */
        void send() {
            var message = new ByteArrayOutputStream();
            number(message, fields.size());
            message.writeBytes(fields.toByteArray());
            try (var out = new FileOutputStream(frames)) {
                out.write(message.toByteArray());
            } catch (IOException gone) {
                // The program closed the channel: it goes on without.
            }
        }

        private static void number(ByteArrayOutputStream out, int value) {
            for (int shift = 24; shift >= 0; shift -= 8) out.write(value >>> shift);
        }
    }
}

/** The code of one execution. */
record Code(String source, String name) {
    int lineAt(int offset) {
        return 1 + (int) source.substring(0, Math.min(offset, source.length())).chars().filter(c -> c == '\n').count();
    }

    String textOf(int line) {
        String[] lines = source.split("\n", -1);
        return line >= 1 && line <= lines.length ? lines[line - 1].stripTrailing() : "";
    }
}

/** The place of a snippet or a class: the code that it is from, and where it begins in that. */
record Place(Code code, int start) {}

/** What the compiler reports, and where in the code that is. */
record Problem(String message, int at) {}

/** Executes one request after the other in the same JShell. */
@SuppressWarnings("removal") // ThreadDeath
final class Session {
    private static final int FORM = 8 << 20;
    private static final String[] IMPORTS = {
        "java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.util.*",
        "java.util.concurrent.*", "java.util.function.*", "java.util.prefs.*",
        "java.util.regex.*", "java.util.stream.*",
    };

    private final Channel channel;
    private final Interrupts interrupts = new Interrupts();
    private final Here here = new Here(interrupts);
    private final JShell shell = JShell.builder().executionEngine(new Provider(here), Map.of()).build();
    private final Map<String, Place> places = new ConcurrentHashMap<>();
    private Code code;
    private List<byte[]> arguments;
    /** The program of the execution before, whose classes JShell does not know yet. */
    private Program unknown;
    private boolean hasFailed;
    private boolean isOver;
    // Given up when memory is short, so that an error can still be reported.
    private byte[] reserve = new byte[4 << 20];

    Session(Channel channel) {
        this.channel = channel;
    }

    void serve() throws IOException {
        for (String packages : IMPORTS) shell.eval("import " + packages + ";");
        String path = System.getenv("CLASSPATH");
        if (path != null) Stream.of(path.split(":")).filter(place -> !place.isEmpty()).forEach(shell::addToClasspath);
        Thread.setDefaultUncaughtExceptionHandler((thread, exception) -> failedInThread(exception));
        interrupts.listen();
        // The program called System.exit().
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            if (!interrupts.isRunning()) return;
            channel.frame("ending").send();
            channel.frame("done").send();
        }));
        for (var request = channel.receive(); request != null; request = channel.receive()) {
            interrupts.await(request.containsKey("interrupted"));
            if (request.containsKey("work")) describe();
            else execute(request);
        }
        // Without an error, the program's threads may go on.
        if (isOver()) System.exit(1);
    }

    /** Whether an execution failed, once there are no more requests. */
    private synchronized boolean isOver() {
        isOver = true;
        return hasFailed;
    }

    private synchronized void failedInThread(Throwable exception) {
        if (exception instanceof ThreadDeath) return; // an interrupt stopped it
        raised(exception);
        hasFailed = true;
        if (isOver) System.exit(1);
    }

    private void execute(Map<String, List<byte[]>> request) {
        String name = Channel.utf8(request.get("name").get(0));
        if (code != null) name += "[" + channel.execution() + "]";
        code = new Code(Channel.utf8(request.get("code").get(0)), name);
        setFailed(false);
        if (!request.containsKey("last")) here.check();
        arguments = request.getOrDefault("argument", List.of());
        if (code.source().contains("args")) shell.eval("String[] args = {" + literals() + "};");
        interrupts.begin();
        channel.frame("started").send();
        if (!evaluate()) setFailed(true);
        System.out.flush();
        System.err.flush();
        channel.frame("done").send();
    }

    private synchronized void setFailed(boolean value) {
        hasFailed = value;
    }

    /** Lists variables, methods and classes. */
    private void describe() {
        channel.frame("started").send();
        declareProgram();
        var frame = channel.frame("variables");
        long total = shell.variables().count() + shell.methods().count() + shell.types().count();
        frame.add("total", String.valueOf(total));
        shell.variables().limit(VARIABLES).forEach(variable -> {
            here.described = null;
            String preview = "";
            try {
                preview = shell.varValue(variable);
            } catch (RuntimeException invalid) {
                // It is declared, but its type is not.
            }
            frame.add("name", Preview.cut(variable.name())).add("type", Preview.cut(variable.typeName()));
            long size = Preview.sizeOf(here.described);
            if (size >= 0) frame.add("size", String.valueOf(size));
            frame.add("preview", preview);
        });
        long left = Math.max(0, VARIABLES - shell.variables().count());
        Stream.concat(
            shell.methods().map(method -> List.of(method.name(), "method", method.signature())),
            shell.types().map(type -> List.of(type.name(), "class", "class " + type.name()))
        ).limit(left).forEach(each -> frame.add("name", Preview.cut(each.get(0)))
            .add("type", each.get(1)).add("preview", Preview.inLine(each.get(2))));
        frame.send();
        channel.frame("done").send();
    }

    private static final int VARIABLES = 1000;

    /** Runs snippets on this very thread: no other JVM to start, and threads of
     * theirs end as anywhere else. */
    static final class Here extends DirectExecutionControl {
        private final Interrupts interrupts;
        /** What has code look for interrupts; null while other executions need not follow. */
        private Checks checks;
        /** The variable's value that was asked for last. */
        Object described;

        Here(Interrupts interrupts) {
            this.interrupts = interrupts;
        }

        /** From now on, code looks for interrupts. */
        void check() {
            if (checks != null) return;
            checks = new Checks(this);
            interrupts.setChecks(checks);
        }

        @Override
        public void load(ClassBytecodes[] classes) throws ClassInstallException, NotImplementedException, EngineTerminationException {
            if (checks == null) super.load(classes);
            else checks.load(classes);
        }

        void loadAsTheyAre(ClassBytecodes[] classes) throws ClassInstallException, NotImplementedException, EngineTerminationException {
            super.load(classes);
        }

        Class<?> find(String name) throws ClassNotFoundException {
            return findClass(name);
        }

        @Override
        @SuppressWarnings("removal")
        protected String invoke(Method method) throws Exception {
            if (!interrupts.enter()) return "";
            boolean isStopped = false;
            try {
                return super.invoke(method);
            } catch (InvocationTargetException e) {
                isStopped = e.getCause() instanceof ThreadDeath;
                throw e;
            } finally {
                interrupts.leave(isStopped);
            }
        }

        /** As JShell shows it, it would call methods of the value. */
        @Override
        public String varValue(String type, String name) {
            try {
                var field = findClass(type).getDeclaredField(name);
                field.setAccessible(true);
                described = field.get(null);
                return Preview.of(described);
            } catch (ReflectiveOperationException | RuntimeException missing) {
                return "";
            }
        }
    }

    private record Provider(Here here) implements ExecutionControlProvider {
        @Override
        public String name() {
            return "here";
        }

        @Override
        public ExecutionControl generate(ExecutionEnv env, Map<String, String> parameters) {
            return here;
        }
    }

    /** A snippet of the source, and where it begins. */
    private record Piece(String text, int start, Completeness completeness) {}

    private String literals() {
        var list = new StringBuilder();
        for (byte[] argument : arguments) {
            list.append('"');
            for (char c : Channel.utf8(argument).toCharArray()) list.append(String.format("\\u%04x", (int) c));
            list.append("\",");
        }
        // In source, such escapes are read first: quotes and backslashes are
        // escaped once more.
        return list.toString()
            .replace("\\u0022", "\\\"").replace("\\u005c", "\\\\")
            .replace("\\u000a", "\\n").replace("\\u000d", "\\r");
    }

    /** The snippets that a source consists of. */
    private List<Piece> pieces(String source) {
        var pieces = new ArrayList<Piece>();
        SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
        String rest = source.startsWith("#!") ? "//" + source.substring(2) : source;
        while (!rest.isBlank()) {
            var info = analysis.analyzeCompletion(rest);
            int start = source.length() - rest.length();
            if (info.completeness() == Completeness.EMPTY) break;
            String text = info.source();
            String remaining = info.remaining();
            boolean isCut = text == null || text.isEmpty() || remaining.length() >= rest.length();
            if (isCut) text = rest;
            // JShell counts lines from the first that is not blank.
            int blank = text.length() - text.stripLeading().length();
            pieces.add(new Piece(text.substring(blank), start + blank, info.completeness()));
            if (isCut) break;
            rest = remaining;
        }
        return pieces;
    }

    /** Whether it ended without an error. */
    private boolean evaluate() {
        boolean hasEndedWell = evaluateCode();
        if (!interrupts.end()) return hasEndedWell;
        errors().interrupted();
        return false;
    }

    private boolean evaluateCode() {
        declareProgram();
        Program program = Program.of(code);
        if (program == null) return evaluatePieces(code.source(), null);
        List<Problem> problems = program.compile(places);
        if (problems.isEmpty()) return run(program);
        if (program.lacksNames() && shell.snippets().count() > IMPORTS.length) {
            // Names that earlier executions declared, which only JShell knows.
            return evaluatePieces(program.snippets(), program.call(literals()));
        }
        errors().rejected(problems, code);
        return false;
    }

    /** Runs a program's `main`; whether it ended without an exception. */
    @SuppressWarnings("removal")
    private boolean run(Program program) {
        unknown = program;
        if (!interrupts.enter()) return false;
        boolean isStopped = false;
        try {
            program.main(arguments.stream().map(Channel::utf8).toArray(String[]::new));
            return true;
        } catch (InvocationTargetException e) {
            isStopped = e.getCause() instanceof ThreadDeath;
            if (!interrupts.hasCome()) raised(e.getCause());
        } catch (ReflectiveOperationException | LinkageError e) {
            raised(e);
        } finally {
            interrupts.leave(isStopped);
        }
        return false;
    }

    /** Declares the classes of the program before, for the code that comes after it. */
    private void declareProgram() {
        if (unknown == null) return;
        for (Piece piece : pieces(unknown.snippets())) {
            shell.eval(piece.text()).forEach(event -> places.put(event.snippet().id(), new Place(unknown.code(), piece.start())));
        }
        unknown = null;
    }

    /** Evaluates the snippets of a source, then the call, if there is one. Declarations
     * alone, with a method `main`, are a program as well. */
    private boolean evaluatePieces(String source, String call) {
        List<Piece> pieces = pieces(source);
        boolean isProgram = true;
        for (int i = 0; i < pieces.size(); i++) {
            Piece piece = pieces.get(i);
            boolean isLast = i == pieces.size() - 1;
            // By the next number, for exceptions of threads that come early.
            var place = new Place(code, piece.start());
            places.put(String.valueOf(shell.snippets().count() + 1), place);
            List<SnippetEvent> events = shell.eval(piece.text());
            if (interrupts.hasCome()) return false;
            for (SnippetEvent event : events) {
                Snippet snippet = event.snippet();
                if (event.causeSnippet() != null) continue;
                places.put(snippet.id(), place);
                if (event.exception() != null) {
                    raised(event.exception());
                    return false;
                }
                if (event.status() == Snippet.Status.REJECTED) {
                    errors().rejected(snippet, place, piece.completeness());
                    return false;
                }
                isProgram &= isDeclaration(snippet);
                if (snippet instanceof MethodSnippet method && method.name().equals("main")) {
                    String parameters = method.parameterTypes();
                    if (parameters.isEmpty() && call == null) call = "main()";
                    if (parameters.equals("String[]") || parameters.equals("String...")) call = "main(new String[] {" + literals() + "})";
                }
                if (isLast) show(snippet, event);
            }
        }
        return call == null || !isProgram || callMain(call);
    }

    private boolean callMain(String call) {
        for (SnippetEvent event : shell.eval(call + ";")) {
            if (event.exception() == null) continue;
            if (!interrupts.hasCome()) raised(event.exception());
            return false;
        }
        return !interrupts.hasCome();
    }

    private static boolean isDeclaration(Snippet snippet) {
        return switch (snippet.subKind()) {
            case VAR_DECLARATION_SUBKIND, VAR_DECLARATION_WITH_INITIALIZER_SUBKIND -> true;
            default -> switch (snippet.kind()) {
                case IMPORT, TYPE_DECL, METHOD -> true;
                default -> false;
            };
        };
    }

    private void show(Snippet snippet, SnippetEvent event) {
        boolean hasValue = switch (snippet.subKind()) {
            case TEMP_VAR_EXPRESSION_SUBKIND, VAR_VALUE_SUBKIND, ASSIGNMENT_SUBKIND, OTHER_EXPRESSION_SUBKIND -> true;
            default -> false;
        };
        String value = event.value();
        if (!hasValue || value == null || value.isEmpty()) return;
        var frame = channel.frame("result").add("main", "");
        if (value.length() > FORM / 4) {
            value = value.substring(0, FORM / 4);
            frame.add("failed", "text/plain: cut to " + FORM / 4 + " characters");
        }
        frame.add("text/plain", value).send();
    }

    private void raised(Throwable exception) {
        reserve = null;
        errors().raised(exception);
    }

    private ErrorReport errors() {
        return new ErrorReport(channel, shell, places);
    }
}

/** A source that `java File.java` would run: classes of which one has a `main`, and which
 * may be in a package. Its other forms, of later versions, are the compiler's matter. */
final class Program {
    private static final Pattern LIKELY = Pattern.compile("\\bmain\\s*\\(|^\\s*package\\s", Pattern.MULTILINE);
    private static final List<String> OPTIONS = List.of("-g", "-proc:none", "-nowarn", "-classpath", classPath());
    private static final String ARRAY = "String[]";

    private final Code code;
    private final DiagnosticCollector<JavaFileObject> diagnostics = new DiagnosticCollector<>();
    private final Map<String, ByteArrayOutputStream> classes = new HashMap<>();
    private final JavacTask task;
    private CompilationUnitTree unit;
    private String owner;
    private MethodTree main;
    private int packageStart;
    private int packageEnd;

    private Program(Code code) {
        this.code = code;
        var compiler = ToolProvider.getSystemJavaCompiler();
        var files = new Memory(compiler.getStandardFileManager(diagnostics, Locale.ENGLISH, StandardCharsets.UTF_8));
        task = (JavacTask) compiler.getTask(null, files, diagnostics, OPTIONS, null, List.of(new Source(code)));
    }

    /** The code as a program, or null. */
    static Program of(Code code) {
        if (!LIKELY.matcher(code.source()).find()) return null;
        var program = new Program(code);
        try {
            program.unit = program.task.parse().iterator().next();
        } catch (IOException | RuntimeException impossible) {
            return null;
        }
        program.findMain();
        program.findPackage();
        // What does not parse may be snippets, but not if it names its package.
        boolean isUnit = program.main != null && program.problems().isEmpty();
        return isUnit || program.unit.getPackage() != null ? program : null;
    }

    Code code() {
        return code;
    }

    /** Where `java File.java` looks, too. */
    private static String classPath() {
        String path = System.getenv("CLASSPATH");
        return path == null || path.isEmpty() ? "." : path;
    }

    /** The first class that has a `main`. */
    private void findMain() {
        for (var declaration : unit.getTypeDecls()) {
            if (!(declaration instanceof ClassTree type)) continue;
            for (String wanted : List.of(ARRAY, "")) {
                for (var member : type.getMembers()) {
                    if (member instanceof MethodTree method && method.getName().contentEquals("main") && parameters(method).equals(wanted)) {
                        owner = type.getSimpleName().toString();
                        main = method;
                        return;
                    }
                }
            }
        }
    }

    private static String parameters(MethodTree method) {
        return method.getParameters().stream().map(VariableTree::getType)
            .map(type -> type instanceof ArrayTypeTree array ? array.getType() + "[]" : String.valueOf(type))
            .map(name -> name.replaceFirst("^java\\.lang\\.", "")).collect(Collectors.joining(", "));
    }

    /** Compiles it into memory; what is wrong with it. Its classes get their places. */
    List<Problem> compile(Map<String, Place> places) {
        if (!problems().isEmpty()) return problems();
        if (main == null) return List.of(new Problem("no class has a method main(String[])", 0));
        try {
            task.generate();
        } catch (IOException impossible) {
            return List.of(new Problem(String.valueOf(impossible.getMessage()), 0));
        }
        for (String name : classes.keySet()) places.put(name, new Place(code, 0));
        return problems();
    }

    private Stream<Diagnostic<? extends JavaFileObject>> mistakes() {
        return diagnostics.getDiagnostics().stream().filter(each -> each.getKind() == Diagnostic.Kind.ERROR);
    }

    private List<Problem> problems() {
        return mistakes().map(each -> new Problem(each.getMessage(Locale.ENGLISH), (int) Math.max(0, each.getPosition()))).toList();
    }

    /** Whether all that is wrong with a program are names that it does not declare. */
    boolean lacksNames() {
        return main != null && mistakes().allMatch(each -> each.getCode().startsWith("compiler.err.cant.resolve"));
    }

    /** Calls `main` on this thread. */
    void main(String[] arguments) throws ReflectiveOperationException {
        var loader = new Loader(classes);
        Thread.currentThread().setContextClassLoader(loader);
        String before = unit.getPackage() == null ? "" : unit.getPackage().getPackageName() + ".";
        Class<?> type = Class.forName(before + owner, true, loader);
        boolean takesArguments = !main.getParameters().isEmpty();
        Method method = takesArguments ? type.getDeclaredMethod("main", String[].class) : type.getDeclaredMethod("main");
        method.setAccessible(true);
        Object self = null;
        if (!Modifier.isStatic(method.getModifiers())) {
            var constructor = type.getDeclaredConstructor();
            constructor.setAccessible(true);
            self = constructor.newInstance();
        }
        method.invoke(self, takesArguments ? new Object[] {arguments} : new Object[0]);
    }

    /** The source for JShell, which has one package for everything. */
    String snippets() {
        String source = code.source();
        return source.substring(0, packageStart) + " ".repeat(packageEnd - packageStart) + source.substring(packageEnd);
    }

    /** Finds the package's declaration, of which the compiler forgets the place later. */
    private void findPackage() {
        if (unit.getPackage() == null) return;
        var positions = Trees.instance(task).getSourcePositions();
        packageStart = (int) positions.getStartPosition(unit, unit.getPackage());
        packageEnd = (int) positions.getEndPosition(unit, unit.getPackage());
    }

    /** The call of `main` as a snippet. */
    String call(String arguments) {
        boolean isStatic = main.getModifiers().getFlags().contains(javax.lang.model.element.Modifier.STATIC);
        String given = main.getParameters().isEmpty() ? "" : "new String[] {" + arguments + "}";
        return (isStatic ? owner : "new " + owner + "()") + ".main(" + given + ")";
    }

    /** The code as a file for the compiler; stack traces have its name. */
    private static final class Source extends SimpleJavaFileObject {
        private final String text;

        Source(Code code) {
            super(uri(code.name()), Kind.SOURCE);
            String source = code.source();
            text = source.startsWith("#!") ? "//" + source.substring(2) : source;
        }

        private static URI uri(String name) {
            try {
                return new URI("code", null, "/" + name.replace('/', '_'), null);
            } catch (URISyntaxException odd) {
                return URI.create("code:///Main.java");
            }
        }

        /** A public class may have another name than the file. */
        @Override
        public boolean isNameCompatible(String name, Kind kind) {
            return kind == Kind.SOURCE;
        }

        @Override
        public CharSequence getCharContent(boolean ignoresErrors) {
            return text;
        }
    }

    /** Keeps compiled classes in memory. */
    private final class Memory extends ForwardingJavaFileManager<JavaFileManager> {
        Memory(JavaFileManager files) {
            super(files);
        }

        @Override
        public JavaFileObject getJavaFileForOutput(Location location, String name, JavaFileObject.Kind kind, FileObject sibling) {
            return new SimpleJavaFileObject(URI.create("memory:///" + name.replace('.', '/') + kind.extension), kind) {
                @Override
                public OutputStream openOutputStream() {
                    var bytes = new ByteArrayOutputStream();
                    classes.put(name, bytes);
                    return bytes;
                }
            };
        }
    }

    /** Finds the program's classes and those of the class path, and not the shim's. */
    private static final class Loader extends URLClassLoader {
        private final Map<String, ByteArrayOutputStream> classes;

        Loader(Map<String, ByteArrayOutputStream> classes) {
            super(places(), ClassLoader.getPlatformClassLoader());
            this.classes = classes;
        }

        private static URL[] places() {
            var places = new ArrayList<URL>();
            for (String each : classPath().split(":")) {
                try {
                    places.add(Path.of(each).toUri().toURL());
                } catch (MalformedURLException odd) {
                    // It has no classes.
                }
            }
            return places.toArray(URL[]::new);
        }

        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            var bytes = classes.get(name);
            if (bytes == null) return super.findClass(name);
            return defineClass(name, bytes.toByteArray(), 0, bytes.size());
        }
    }
}

/** Has code look for interrupts at each of its branches, since Java 20 has no other way to
 * stop a thread that does not wait. JShell's own local execution inserts the looks there. */
final class Checks extends LocalExecutionControl {
    private static final String CANCEL = "REPL.$Cancel$";
    /** What they look at; null where Java has no such class. */
    private Field all;

    Checks(Session.Here here) {
        super(new LoaderDelegate() {
            @Override
            public void load(ExecutionControl.ClassBytecodes[] classes)
                throws ExecutionControl.ClassInstallException, ExecutionControl.NotImplementedException, ExecutionControl.EngineTerminationException {
                here.loadAsTheyAre(classes);
            }

            @Override
            public void classesRedefined(ExecutionControl.ClassBytecodes[] classes) {}

            @Override
            public void addToClasspath(String path) {}

            @Override
            public Class<?> findClass(String name) throws ClassNotFoundException {
                return here.find(name);
            }
        });
        if (Runtime.version().feature() < 20) return;
        // It makes the class when it invokes something, and takes over the handler.
        var handler = Thread.getDefaultUncaughtExceptionHandler();
        try {
            Method nothing = Checks.class.getDeclaredMethod("nothing");
            nothing.setAccessible(true);
            invoke(nothing);
            all = findClass(CANCEL).getDeclaredField("allStop");
        } catch (Exception unknown) {
            // Another version of JShell: what does not wait has to be killed.
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(handler);
        }
    }

    private static void nothing() {}

    /** Whether code that looks stops. */
    void stop(boolean value) {
        try {
            if (all != null) all.set(null, value);
        } catch (IllegalAccessException | RuntimeException unknown) {
            all = null;
        }
    }
}

/** SIGINT: it stops the code of an execution, and nothing of the shim's own. */
@SuppressWarnings("removal") // ThreadDeath
final class Interrupts {
    private final Thread thread = Thread.currentThread();
    private boolean isRunning;
    private boolean isInvoking;
    private boolean hasCome;
    private boolean isStopped;
    /** Whether a signal was handled since the last request came. */
    private boolean isHandled;
    private Checks checks;

    /** Listens to the signal, by the class that all virtual machines have for that and
     * the compiler warns of. */
    void listen() {
        try {
            handle("INT", this::interrupt);
        } catch (ReflectiveOperationException | IllegalArgumentException unknown) {
            // Another kind of virtual machine: an interrupt ends it.
        }
    }

    private static void handle(String name, Runnable action) throws ReflectiveOperationException {
        Class<?> signal = Class.forName("sun.misc.Signal");
        Class<?> handler = Class.forName("sun.misc.SignalHandler");
        Object own = Proxy.newProxyInstance(handler.getClassLoader(), new Class<?>[] {handler}, (proxy, method, arguments) -> {
            if (method.getName().equals("handle")) action.run();
            return null;
        });
        Object number = signal.getConstructor(String.class).newInstance(name);
        signal.getMethod("handle", signal, handler).invoke(null, number, own);
    }

    /** A request has come. A signal that was sent before is waited for: the virtual machine
     * handles it in a thread of its own. But not for ever, since the program may have put
     * another handler in place of this one. */
    synchronized void await(boolean isSent) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(1);
        try {
            while (isSent && !isHandled && System.nanoTime() < end) wait(10);
        } catch (InterruptedException none) {
            // Nothing but the signal interrupts, and so it has come.
        }
        isHandled = false;
    }

    /** An execution begins; what has come before is forgotten. */
    synchronized void begin() {
        isRunning = true;
        hasCome = false;
    }

    /** An execution has ended; whether it was interrupted. */
    synchronized boolean end() {
        isRunning = false;
        return hasCome;
    }

    synchronized boolean hasCome() {
        return hasCome;
    }

    synchronized boolean isRunning() {
        return isRunning;
    }

    synchronized void setChecks(Checks checks) {
        this.checks = checks;
    }

    private void stopChecked(boolean value) {
        if (checks != null) checks.stop(value);
    }

    private synchronized void interrupt() {
        isHandled = true;
        notifyAll();
        if (!isRunning || hasCome) return;
        hasCome = true;
        if (!isInvoking) return;
        try {
            Thread.class.getMethod("stop").invoke(thread);
            isStopped = true;
        } catch (ReflectiveOperationException gone) {
            // From Java 20 on, a thread stops where it looks or waits.
            stopChecked(true);
            thread.interrupt();
        }
    }

    /** Code begins; false if it must not. */
    synchronized boolean enter() {
        isInvoking = !hasCome;
        isStopped = false;
        return isInvoking;
    }

    /** Code has ended. If it was to be stopped and does not know it yet, that comes now. */
    @SuppressWarnings("removal")
    void leave(boolean knows) {
        try {
            synchronized (this) {
                isInvoking = false;
                stopChecked(false);
                if (!isStopped || knows) return;
            }
            Thread.sleep(500);
        } catch (ThreadDeath | InterruptedException stopped) {
            // As meant.
        } finally {
            Thread.interrupted();
        }
    }
}

/** Previews of values, without calling methods of the program's classes. */
final class Preview {
    private static final int WIDTH = 100;
    private static final int ITEMS = 20;
    /** Collections of which reading calls nothing else. */
    private static final Set<String> KNOWN = Set.of("ArrayList", "LinkedList", "ArrayDeque", "Vector", "HashMap",
        "LinkedHashMap", "TreeMap", "HashSet", "LinkedHashSet", "TreeSet", "ListN", "List12", "MapN", "Map1", "SetN", "Set12");

    private Preview() {}

    static String of(Object value) {
        try {
            return inLine(shown(value, 2));
        } catch (RuntimeException changed) {
            return "…"; // by another thread, meanwhile
        }
    }

    static String cut(String text) {
        return text.length() > 200 ? text.substring(0, 200) : text;
    }

    static String inLine(String text) {
        String line = text.substring(0, Math.min(text.length(), 4 * WIDTH)).replaceAll("[\\p{Cntrl}\\s]", " ");
        return line.length() > WIDTH ? line.substring(0, WIDTH - 1) + "…" : line;
    }

    /** The bytes of an array's or a string's data; -1 for all else. */
    static long sizeOf(Object value) {
        if (value instanceof String text) return 2L * text.length();
        if (value == null || !value.getClass().isArray()) return -1;
        Class<?> part = value.getClass().getComponentType();
        int each = part == long.class || part == double.class ? 8 : part == short.class || part == char.class ? 2
            : part == byte.class || part == boolean.class ? 1 : 4;
        return (long) each * Array.getLength(value);
    }

    private static String shown(Object value, int depth) {
        if (value == null) return "null";
        Class<?> kind = value.getClass();
        if (value instanceof String text) {
            return '"' + text.substring(0, Math.min(text.length(), WIDTH)) + (text.length() > WIDTH ? "…" : "\"");
        }
        if (value instanceof Character) return "'" + value + "'";
        boolean isJavas = kind.getClassLoader() == null;
        if (isJavas && (kind.getPackageName().equals("java.lang") && value instanceof Number || value instanceof Boolean)) {
            return value.toString();
        }
        if (kind.isArray()) {
            int length = Array.getLength(value);
            String name = kind.getComponentType().getSimpleName() + "[" + length + "] ";
            return name + joined(Stream.iterate(0, i -> i < length, i -> i + 1).map(i -> Array.get(value, i)), length, depth);
        }
        if (isJavas && KNOWN.contains(kind.getSimpleName())) {
            if (value instanceof Collection<?> all) return joined(all.stream(), all.size(), depth);
            if (value instanceof Map<?, ?> map && depth > 0) {
                return map.entrySet().stream().limit(ITEMS)
                    .map(entry -> shown(entry.getKey(), depth - 1) + "=" + shown(entry.getValue(), depth - 1))
                    .collect(Collectors.joining(", ", "{", map.size() > ITEMS ? ", …}" : "}"));
            }
        }
        return "<" + (kind.getSimpleName().isEmpty() ? kind.getName() : kind.getSimpleName()) + ">";
    }

    private static String joined(Stream<?> values, int length, int depth) {
        if (depth == 0) return "[…]";
        return values.limit(ITEMS).map(each -> shown(each, depth - 1))
            .collect(Collectors.joining(", ", "[", length > ITEMS ? ", …]" : "]"));
    }
}

/** Reports errors with the frames that are the code's own or Java's. */
final class ErrorReport {
    private static final Pattern MISSING = Pattern.compile("^package ([\\w.]+) does not exist");
    private static final Set<String> OURS = Set.of("Shim", "Session", "Session$Here", "ErrorReport", "Channel", "Program");

    private final Channel channel;
    private final JShell shell;
    private final Map<String, Place> places;

    ErrorReport(Channel channel, JShell shell, Map<String, Place> places) {
        this.channel = channel;
        this.shell = shell;
        this.places = places;
    }

    /** Reports a snippet that does not compile. */
    void rejected(Snippet snippet, Place place, Completeness completeness) {
        var problems = new ArrayList<Problem>();
        for (Diag diagnostic : shell.diagnostics(snippet).toList()) {
            int at = place.start() + (int) Math.max(0, diagnostic.getPosition());
            if (diagnostic.isError()) problems.add(new Problem(diagnostic.getMessage(Locale.ENGLISH), at));
        }
        if (problems.isEmpty()) {
            boolean isCut = completeness == Completeness.DEFINITELY_INCOMPLETE;
            problems.add(new Problem(isCut ? "reached end of file while parsing" : "not a statement", place.start()));
        }
        rejected(problems, place.code());
    }

    /** Reports what does not compile. */
    void rejected(List<Problem> problems, Code code) {
        var traceback = new ArrayList<String>();
        for (Problem problem : problems) {
            int line = code.lineAt(problem.at());
            int column = problem.at() - code.source().lastIndexOf('\n', Math.max(0, problem.at() - 1)) - 1;
            String[] words = plain(problem.message()).split("\n");
            traceback.add(code.name() + ":" + line + ": error: " + words[0]);
            traceback.add(code.textOf(line));
            traceback.add(" ".repeat(Math.max(0, Math.min(column, 500))) + "^");
            traceback.addAll(Arrays.asList(words).subList(1, words.length));
        }
        Problem first = problems.get(0);
        var missing = MISSING.matcher(first.message());
        if (missing.find()) error("PackageNotFoundError", "cannot find package '" + missing.group(1) + "'", traceback, code.lineAt(first.at()), false);
        else error("CompileError", plain(first.message()), traceback, code.lineAt(first.at()), true);
    }

    void interrupted() {
        error("Interrupted", "the execution was interrupted", List.of("Interrupted: the execution was interrupted"), 0, false);
    }

    void raised(Throwable exception) {
        var traceback = new ArrayList<String>();
        int line = describe(exception, traceback, "");
        error(nameOf(exception), messageOf(exception), traceback, line, false);
    }

    private static String nameOf(Throwable exception) {
        if (exception instanceof EvalException e) return e.getExceptionClassName();
        if (exception instanceof UnresolvedReferenceException) return "UnresolvedReferenceError";
        return exception.getClass().getName();
    }

    /** The text without the classes that JShell puts snippets into. */
    private static String plain(String text) {
        return text.replaceAll("REPL\\.\\$JShell\\$\\w+[.$]", "").replaceAll("\\n\\s*location: class\\s*(?=\\n|$)", "");
    }

    private String messageOf(Throwable exception) {
        if (exception instanceof UnresolvedReferenceException e) {
            var missing = shell.unresolvedDependencies(e.getSnippet()).toList();
            return "this is declared, but not yet usable: " + String.join(", ", missing);
        }
        return exception.getMessage() == null ? "" : plain(exception.getMessage());
    }

    /** Adds the lines of an exception and its causes; the line in the user's code, or 0. */
    private int describe(Throwable exception, List<String> traceback, String before) {
        String message = messageOf(exception);
        traceback.addAll(Arrays.asList(
            (before + nameOf(exception) + (message.isEmpty() ? "" : ": " + message)).split("\n")));
        int found = 0;
        var lines = new ArrayList<String>();
        for (StackTraceElement frame : exception.getStackTrace()) {
            Place place = placeOf(frame);
            if (place == null) {
                if (!isOurs(frame)) lines.add("    at " + frame);
                continue;
            }
            String what = Stream.of(frame.getClassName(), frame.getMethodName())
                .map(ErrorReport::plain).filter(part -> !part.isEmpty() && !part.startsWith("REPL.") && !part.contains("do_it$"))
                .collect(Collectors.joining("."));
            Code code = place.code();
            int line = code.lineAt(place.start()) + Math.max(1, frame.getLineNumber()) - 1;
            String where = code.name() + ":" + line;
            lines.add("    at " + (what.isEmpty() ? where : what + " (" + where + ")"));
            if (found == 0) {
                found = line;
                lines.add("        " + code.textOf(line).strip());
            }
        }
        if (lines.size() > 60) {
            int left = lines.size() - 60;
            lines.subList(50, 50 + left).clear();
            lines.add(50, "    … " + left + " lines left out …");
        }
        traceback.addAll(lines);
        Throwable cause = exception.getCause();
        if (cause != null && traceback.size() < 400) {
            int inner = describe(cause, traceback, "Caused by: ");
            if (found == 0) found = inner;
        }
        return found;
    }

    /** The place of the snippet or the program's class that a frame is of, or null. JShell
     * names a snippet's file `#` and its number, but not in the frames of threads that the
     * snippet started. */
    private Place placeOf(StackTraceElement frame) {
        String file = String.valueOf(frame.getFileName());
        return places.get(file.startsWith("#") ? file.substring(1) : frame.getClassName());
    }

    private static boolean isOurs(StackTraceElement frame) {
        String owner = frame.getClassName();
        return owner.startsWith("jdk.jshell.") || owner.startsWith("jdk.internal.reflect.")
            || OURS.contains(owner) || owner.startsWith("REPL.") || owner.startsWith("java.lang.reflect.")
            || owner.startsWith("com.sun.tools.javac.launcher.");
    }

    private void error(String kind, String message, List<String> traceback, int line, boolean isSyntax) {
        var frame = channel.frame("error").add("name", kind)
            .add("message", message.substring(0, Math.min(message.length(), 16000)));
        for (String text : traceback.subList(0, Math.min(traceback.size(), 400))) {
            frame.add("traceback", text.substring(0, Math.min(text.length(), 2000)));
        }
        if (line > 0) frame.add("line", String.valueOf(line));
        if (isSyntax) frame.add("syntax", "");
        frame.send();
    }
}
