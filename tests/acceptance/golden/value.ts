import { writeFileSync } from 'fs';

enum Axis { X, Y }
interface Point { x: number; axis: Axis }

writeFileSync('out.txt', 'kept\n');
const point: Point = { x: 3, axis: Axis.Y };
console.log('axis:', Axis[point.axis]);
point satisfies Point;
point
