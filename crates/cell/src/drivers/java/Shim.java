// Takes the request from the channel (see frames/mod.rs) and runs its code in
// JShell, in this same process.

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
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
    private static final int FORM = 8 << 20;
    private static final String[] IMPORTS = {
        "java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.util.*",
        "java.util.concurrent.*", "java.util.function.*", "java.util.prefs.*",
        "java.util.regex.*", "java.util.stream.*",
    };

    private final int channel;
    private final Map<String, List<byte[]>> request = new HashMap<>();
    private final Map<String, Integer> offsets = new HashMap<>();
    private final String source;
    private final String name;
    private JShell shell;
    // Given up when memory is short, so that there is some to say so.
    private byte[] reserve = new byte[4 << 20];

    public static void main(String[] args) throws Exception {
        // Without an error, the program's threads may go on.
        int status = new Shim(Integer.parseInt(args[0])).run();
        if (status != 0) System.exit(status);
    }

    private Shim(int channel) throws IOException {
        this.channel = channel;
        try (var in = new DataInputStream(new FileInputStream("/proc/self/fd/" + channel))) {
            int left = in.readInt();
            while (left > 0) {
                in.readByte();
                byte[] key = new byte[in.readUnsignedByte()];
                byte[] value = new byte[in.readInt()];
                in.readFully(key);
                in.readFully(value);
                left -= 6 + key.length + value.length;
                request.computeIfAbsent(utf8(key), any -> new ArrayList<>()).add(value);
            }
        }
        source = utf8(request.get("code").get(0));
        name = utf8(request.get("name").get(0));
    }

    private static String utf8(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    // ------------------------------------------------------------------- frames

    private final class Message {
        private final ByteArrayOutputStream fields = new ByteArrayOutputStream();

        Message(String kind) {
            add("kind", kind);
        }

        Message add(String key, String value) {
            byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
            fields.write('t');
            fields.write(key.length());
            number(fields, bytes.length);
            fields.writeBytes(key.getBytes(StandardCharsets.US_ASCII));
            fields.writeBytes(bytes);
            return this;
        }

        /** Writes it; the channel is open for no longer than that. */
        void send() {
            var message = new ByteArrayOutputStream();
            number(message, fields.size());
            message.writeBytes(fields.toByteArray());
            try (var out = new FileOutputStream("/proc/self/fd/" + (channel + 1))) {
                out.write(message.toByteArray());
            } catch (IOException gone) {
                // The program closed the channel: it goes on without.
            }
        }

        private static void number(ByteArrayOutputStream out, int value) {
            for (int shift = 24; shift >= 0; shift -= 8) out.write(value >>> shift);
        }
    }

    // ---------------------------------------------------------------- the run

    /** Runs snippets on this very thread: no other JVM to start, and threads of
     * theirs end as anywhere else. */
    private static final class Here implements ExecutionControlProvider {
        @Override
        public String name() {
            return "here";
        }

        @Override
        public ExecutionControl generate(ExecutionEnv env, Map<String, String> parameters) {
            return new DirectExecutionControl();
        }
    }

    /** A piece of the source, and where it begins. */
    private record Piece(String text, int start, Completeness completeness) {}

    private int run() {
        shell = JShell.builder().executionEngine(new Here(), Map.of()).build();
        Thread.setDefaultUncaughtExceptionHandler((thread, exception) -> {
            raised(exception);
            System.exit(1);
        });
        for (String packages : IMPORTS) shell.eval("import " + packages + ";");
        if (source.contains("args")) shell.eval("String[] args = {" + arguments() + "};");
        new Message("started").send();
        int status = evaluate();
        new Message("done").send();
        return status;
    }

    private String arguments() {
        var list = new StringBuilder();
        for (byte[] argument : request.getOrDefault("argument", List.of())) {
            list.append('"');
            for (char c : utf8(argument).toCharArray()) list.append(String.format("\\u%04x", (int) c));
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

    private int evaluate() {
        List<Piece> pieces = pieces();
        for (int i = 0; i < pieces.size(); i++) {
            Piece piece = pieces.get(i);
            boolean isLast = i == pieces.size() - 1;
            // By the next number, for exceptions of threads that come early.
            offsets.put(String.valueOf(shell.snippets().count() + 1), piece.start());
            for (SnippetEvent event : shell.eval(piece.text())) {
                Snippet snippet = event.snippet();
                if (event.causeSnippet() != null) continue;
                offsets.put(snippet.id(), piece.start());
                if (event.exception() != null) return raised(event.exception());
                if (event.status() == Snippet.Status.REJECTED) return rejected(snippet, piece);
                if (isLast) show(snippet, event);
            }
        }
        return 0;
    }

    private void show(Snippet snippet, SnippetEvent event) {
        boolean hasValue = switch (snippet.subKind()) {
            case TEMP_VAR_EXPRESSION_SUBKIND, VAR_VALUE_SUBKIND, ASSIGNMENT_SUBKIND, OTHER_EXPRESSION_SUBKIND -> true;
            default -> false;
        };
        String value = event.value();
        if (!hasValue || value == null || value.isEmpty()) return;
        var message = new Message("result").add("main", "");
        if (value.length() > FORM / 4) {
            value = value.substring(0, FORM / 4);
            message.add("failed", "text/plain: cut to " + FORM / 4 + " characters");
        }
        message.add("text/plain", value).send();
    }

    // ------------------------------------------------------------------ errors

    private int lineAt(int offset) {
        return 1 + (int) source.substring(0, Math.min(offset, source.length())).chars().filter(c -> c == '\n').count();
    }

    private String textOf(int line) {
        String[] lines = source.split("\n", -1);
        return line >= 1 && line <= lines.length ? lines[line - 1].stripTrailing() : "";
    }

    private int rejected(Snippet snippet, Piece piece) {
        int start = offsets.get(snippet.id());
        var traceback = new ArrayList<String>();
        String first = null;
        int firstLine = 0;
        for (Diag diagnostic : shell.diagnostics(snippet).toList()) {
            if (!diagnostic.isError()) continue;
            String text = plain(diagnostic.getMessage(Locale.ENGLISH));
            int at = start + (int) Math.max(0, diagnostic.getPosition());
            int line = lineAt(at);
            if (first == null) {
                first = text;
                firstLine = line;
            }
            int column = at - source.lastIndexOf('\n', Math.max(0, at - 1)) - 1;
            String[] words = text.split("\n");
            traceback.add(name + ":" + line + ": error: " + words[0]);
            traceback.add(textOf(line));
            traceback.add(" ".repeat(Math.max(0, Math.min(column, 500))) + "^");
            traceback.addAll(Arrays.asList(words).subList(1, words.length));
        }
        if (first == null) {
            boolean isCut = piece.completeness() == Completeness.DEFINITELY_INCOMPLETE;
            first = isCut ? "reached end of file while parsing" : "not a statement";
            firstLine = lineAt(start);
            traceback.add(name + ":" + firstLine + ": error: " + first);
            traceback.add(textOf(firstLine));
        }
        error("CompileError", first, traceback, firstLine, true);
        return 1;
    }

    private int raised(Throwable exception) {
        reserve = null;
        var traceback = new ArrayList<String>();
        int line = describe(exception, traceback, "");
        error(nameOf(exception), messageOf(exception), traceback, line, false);
        return 1;
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
            int line = lineOf(frame);
            if (line == 0) {
                if (!isOurs(frame)) lines.add("    at " + frame);
                continue;
            }
            String what = Stream.of(frame.getClassName(), frame.getMethodName())
                .map(Shim::plain).filter(part -> !part.isEmpty() && !part.startsWith("REPL.") && !part.contains("do_it$"))
                .collect(Collectors.joining("."));
            String place = name + ":" + line;
            lines.add("    at " + (what.isEmpty() ? place : what + " (" + place + ")"));
            if (found == 0) {
                found = line;
                lines.add("        " + textOf(line).strip());
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

    /** The line in the user's code, or 0. JShell names a snippet's file `#` and its
     * number, but not in the frames of threads that the snippet started. */
    private int lineOf(StackTraceElement frame) {
        String file = String.valueOf(frame.getFileName());
        boolean isNamed = file.startsWith("#") && offsets.containsKey(file.substring(1));
        if (!isNamed) return 0;
        return lineAt(offsets.get(file.substring(1))) + Math.max(1, frame.getLineNumber()) - 1;
    }

    private static boolean isOurs(StackTraceElement frame) {
        String owner = frame.getClassName();
        return owner.startsWith("jdk.jshell.") || owner.startsWith("jdk.internal.reflect.")
            || owner.equals("Shim") || owner.startsWith("REPL.") || owner.startsWith("java.lang.reflect.")
            || owner.startsWith("com.sun.tools.javac.launcher.");
    }

    private void error(String kind, String message, List<String> traceback, int line, boolean isSyntax) {
        var frame = new Message("error").add("name", kind)
            .add("message", message.substring(0, Math.min(message.length(), 16000)));
        for (String text : traceback.subList(0, Math.min(traceback.size(), 400))) {
            frame.add("traceback", text.substring(0, Math.min(text.length(), 2000)));
        }
        if (line > 0) frame.add("line", String.valueOf(line));
        if (isSyntax) frame.add("syntax", "");
        frame.send();
    }
}
