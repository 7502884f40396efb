interface Point { x?: { y: number } }

function f(point: Point): number {
  return point.x!.y;
}

console.log('before');
f({});
