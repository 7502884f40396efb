import java.util.concurrent.*;
import java.util.stream.*;

var pool = Executors.newFixedThreadPool(4);
var tasks = IntStream.range(0, 8).mapToObj(n -> (Callable<Integer>) () -> n * n).toList();
int sum = 0;
for (var future : pool.invokeAll(tasks)) sum += future.get();
pool.shutdown();
System.out.println(sum + " " + pool.awaitTermination(20, TimeUnit.SECONDS));
System.out.println(IntStream.rangeClosed(1, 1000).parallel().sum());
