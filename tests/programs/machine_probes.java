import java.lang.management.ManagementFactory;
import java.nio.file.*;
import java.util.stream.IntStream;

public class MachineProbes {
    public static void main(String[] args) throws Exception {
        long limit = Long.parseLong(Files.readString(Path.of("/sys/fs/cgroup/memory.max")).strip());
        Runtime runtime = Runtime.getRuntime();
        System.out.println(runtime.availableProcessors() + " " + (runtime.maxMemory() <= limit));
        var system = (com.sun.management.OperatingSystemMXBean)
                ManagementFactory.getOperatingSystemMXBean();
        System.out.println((system.getTotalMemorySize() == limit) + " "
                + (system.getFreeMemorySize() <= limit) + " " + system.getTotalSwapSpaceSize());
        System.out.println(IntStream.range(0, 1000).parallel().sum());
        System.out.println(ProcessHandle.current().pid() > 1);
    }
}
