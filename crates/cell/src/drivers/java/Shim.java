// Runs the code of one request after the other in JShell, in this same process. It is
// one file, since Java 17 starts no program of several.

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.reflect.Array;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.SourceCodeAnalysis.Completeness;
import jdk.jshell.UnresolvedReferenceException;
import jdk.jshell.execution.DirectExecutionControl;
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
 * crates/cell/src/drivers/frames/mod.rs. */
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

/** A snippet's place: the code that it is from, and where it begins in that. */
record Place(Code code, int start) {}

/** Executes one request after the other in the same JShell. */
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
    private boolean hasFailed;
    private boolean isOver;
    // Given up when memory is short, so that an error can still be reported.
    private byte[] reserve = new byte[4 << 20];

    Session(Channel channel) {
        this.channel = channel;
    }

    void serve() throws IOException {
        for (String packages : IMPORTS) shell.eval("import " + packages + ";");
        Thread.setDefaultUncaughtExceptionHandler((thread, exception) -> failedInThread(exception));
        interrupts.listen();
        for (var request = channel.receive(); request != null; request = channel.receive()) {
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
        raised(exception);
        hasFailed = true;
        if (isOver) System.exit(1);
    }

    private void execute(Map<String, List<byte[]>> request) {
        String name = Channel.utf8(request.get("name").get(0));
        if (code != null) name += "[" + channel.execution() + "]";
        code = new Code(Channel.utf8(request.get("code").get(0)), name);
        setFailed(false);
        var arguments = request.getOrDefault("argument", List.of());
        if (code.source().contains("args")) shell.eval("String[] args = {" + literals(arguments) + "};");
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
    private static final class Here extends DirectExecutionControl {
        private final Interrupts interrupts;
        /** The variable's value that was asked for last. */
        Object described;

        Here(Interrupts interrupts) {
            this.interrupts = interrupts;
        }

        @Override
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

    private static String literals(List<byte[]> arguments) {
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

    /** The snippets that the source consists of. */
    private List<Piece> pieces() {
        var pieces = new ArrayList<Piece>();
        String source = code.source();
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
        boolean hasEndedWell = evaluatePieces();
        if (!interrupts.end()) return hasEndedWell;
        errors().interrupted();
        return false;
    }

    private boolean evaluatePieces() {
        List<Piece> pieces = pieces();
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
                if (isLast) show(snippet, event);
            }
        }
        return true;
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

/** SIGINT: it stops the code of an execution, and nothing of the shim's own. */
final class Interrupts {
    private final Thread thread = Thread.currentThread();
    private boolean isRunning;
    private boolean isInvoking;
    private boolean hasCome;
    private boolean isStopped;

    private final Semaphore settled = new Semaphore(0);
    private Runnable askToSettle = () -> {};

    /** Listens to the signal, by the class that all virtual machines have for that and
     * the compiler warns of. */
    void listen() {
        try {
            handle("INT", this::interrupt);
            Object mark = handle("WINCH", settled::release);
            Method raise = mark.getClass().getMethod("raise", mark.getClass());
            askToSettle = () -> {
                try {
                    raise.invoke(null, mark);
                } catch (ReflectiveOperationException impossible) {
                    settled.release();
                }
            };
        } catch (ReflectiveOperationException | IllegalArgumentException unknown) {
            // Another kind of virtual machine: an interrupt ends it.
            askToSettle = settled::release;
        }
    }

    private static Object handle(String name, Runnable action) throws ReflectiveOperationException {
        Class<?> signal = Class.forName("sun.misc.Signal");
        Class<?> handler = Class.forName("sun.misc.SignalHandler");
        Object own = Proxy.newProxyInstance(handler.getClassLoader(), new Class<?>[] {handler}, (proxy, method, arguments) -> {
            if (method.getName().equals("handle")) action.run();
            return null;
        });
        Object number = signal.getConstructor(String.class).newInstance(name);
        signal.getMethod("handle", signal, handler).invoke(null, number, own);
        return number;
    }

    /** Waits until the virtual machine has handled the signals that have come: it does so in
     * threads of their own, in the order of their numbers. */
    private void settle() {
        ThreadGroup all = thread.getThreadGroup();
        while (all.getParent() != null) all = all.getParent();
        try {
            askToSettle.run();
            settled.tryAcquire(1, TimeUnit.SECONDS);
            for (int tries = 0; tries < 1000; tries++) {
                var threads = new Thread[all.activeCount() + 16];
                int count = all.enumerate(threads);
                if (Arrays.stream(threads, 0, count).noneMatch(each -> each.getName().equals("SIGINT handler"))) return;
                Thread.sleep(1);
            }
        } catch (InterruptedException none) {
            // Nothing but the signal interrupts, and it is not for now.
        }
    }

    /** An execution begins; what has come before is forgotten. */
    void begin() {
        settle();
        synchronized (this) {
            isRunning = true;
            hasCome = false;
        }
    }

    /** An execution has ended; whether it was interrupted. */
    synchronized boolean end() {
        isRunning = false;
        return hasCome;
    }

    synchronized boolean hasCome() {
        return hasCome;
    }

    private synchronized void interrupt() {
        if (!isRunning || hasCome) return;
        hasCome = true;
        if (!isInvoking) return;
        try {
            // From Java 20 on, nothing stops a thread that goes on without waiting.
            Thread.class.getMethod("stop").invoke(thread);
            isStopped = true;
        } catch (ReflectiveOperationException gone) {
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
    void leave(boolean knows) {
        try {
            synchronized (this) {
                isInvoking = false;
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
    private static final Set<String> OURS = Set.of("Shim", "Session", "Session$Here", "ErrorReport", "Channel");

    private final Channel channel;
    private final JShell shell;
    private final Map<String, Place> places;

    ErrorReport(Channel channel, JShell shell, Map<String, Place> places) {
        this.channel = channel;
        this.shell = shell;
        this.places = places;
    }

    /** Reports what does not compile. */
    void rejected(Snippet snippet, Place place, Completeness completeness) {
        Code code = place.code();
        var traceback = new ArrayList<String>();
        String first = null;
        int firstLine = 0;
        for (Diag diagnostic : shell.diagnostics(snippet).toList()) {
            if (!diagnostic.isError()) continue;
            String text = plain(diagnostic.getMessage(Locale.ENGLISH));
            int at = place.start() + (int) Math.max(0, diagnostic.getPosition());
            int line = code.lineAt(at);
            if (first == null) {
                first = text;
                firstLine = line;
            }
            int column = at - code.source().lastIndexOf('\n', Math.max(0, at - 1)) - 1;
            String[] words = text.split("\n");
            traceback.add(code.name() + ":" + line + ": error: " + words[0]);
            traceback.add(code.textOf(line));
            traceback.add(" ".repeat(Math.max(0, Math.min(column, 500))) + "^");
            traceback.addAll(Arrays.asList(words).subList(1, words.length));
        }
        if (first == null) {
            boolean isCut = completeness == Completeness.DEFINITELY_INCOMPLETE;
            first = isCut ? "reached end of file while parsing" : "not a statement";
            firstLine = code.lineAt(place.start());
            traceback.add(code.name() + ":" + firstLine + ": error: " + first);
            traceback.add(code.textOf(firstLine));
        }
        error("CompileError", first, traceback, firstLine, true);
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

    /** The snippet that a frame is of, or null. JShell names a snippet's file `#` and its
     * number, but not in the frames of threads that the snippet started. */
    private Place placeOf(StackTraceElement frame) {
        String file = String.valueOf(frame.getFileName());
        return file.startsWith("#") ? places.get(file.substring(1)) : null;
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
