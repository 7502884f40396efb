import java.util.*;
import java.util.stream.*;

record Sale(String region, int amount) {}
var sales = List.of(new Sale("north", 10), new Sale("south", 5), new Sale("north", 7));
var totals = sales.stream().collect(
    Collectors.groupingBy(Sale::region, TreeMap::new, Collectors.summingInt(Sale::amount)));
System.out.println(totals);
System.out.println(IntStream.rangeClosed(1, 5).mapToObj(Integer::toString).collect(Collectors.joining("-")));
