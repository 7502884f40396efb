package shop;

import java.util.ArrayList;
import java.util.List;

interface Priced {
    double price();
}

record Item(String name, double price) implements Priced {}

class Inventory {
    private final List<Item> items = new ArrayList<>();

    void add(String name, double price) {
        if (price < 0) throw new IllegalArgumentException("price of " + name);
        items.add(new Item(name, price));
    }

    double total() {
        return items.stream().mapToDouble(Priced::price).sum();
    }
}

public class Main {
    public static void main(String[] args) {
        var inventory = new Inventory();
        inventory.add("pen", 1.5);
        inventory.add("book", 12.25);
        System.out.printf("%s %.2f%n", Main.class.getName(), inventory.total());
        inventory.add("cup", -1);
    }
}
