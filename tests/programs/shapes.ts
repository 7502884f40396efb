interface Shape { area(): number }
class Circle implements Shape {
  constructor(private readonly radius: number) {}
  area(): number { return Math.PI * this.radius ** 2; }
}
enum Color { Red = 'red', Blue = 'blue' }
type Painted<T extends Shape> = { shape: T; color: Color };
const items: Painted<Circle>[] = [{ shape: new Circle(1), color: Color.Red }, { shape: new Circle(2), color: Color.Blue }];
const total: number = items.reduce((sum, item) => sum + item.shape.area(), 0);
console.log(total.toFixed(4), items.map((item) => item.color));
