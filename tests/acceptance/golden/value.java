import java.nio.file.*;

Files.writeString(Path.of("out.txt"), "kept\n");
record Point(int x, int y) {}
System.out.println("sum: " + IntStream.of(1, 2).sum());
new Point(1, 2)
