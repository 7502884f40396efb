import java.nio.file.*;
import java.util.*;

Files.writeString(Path.of("notes.txt"), "one\ntwo\nthree\n");
var longest = Files.readAllLines(Path.of("notes.txt")).stream().max(Comparator.comparingInt(String::length)).get();
System.out.println(longest + " " + Files.size(Path.of("notes.txt")));
System.out.println(String.format("%.3f %s", Math.PI, "ok".repeat(2)));
