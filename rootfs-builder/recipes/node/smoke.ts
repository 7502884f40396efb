import assert from "node:assert";

interface Point {
  x: number;
  y: number;
}
enum Axis {
  X,
  Y,
}
namespace Shapes {
  export const sides = 4;
}
class Box<T> {
  constructor(private readonly value: T) {}
  get(): T {
    return this.value;
  }
}
const points: Point[] = [
  { x: 1, y: 2 },
  { x: 3, y: 4 },
];
const total = points.reduce((sum: number, p: Point): number => sum + p.x * p.y, Axis.X);
assert.equal(total, 14);
assert.equal(Axis[1], "Y");
assert.equal(Shapes.sides, 4);
assert.equal(new Box<string>("in").get() satisfies string, "in");
