from PIL import Image, ImageDraw, ImageFilter

image = Image.new("RGB", (200, 120), "white")
draw = ImageDraw.Draw(image)
draw.ellipse((50, 20, 150, 100), fill=(200, 30, 30))
draw.text((80, 50), "hello", fill="black")
small = image.filter(ImageFilter.GaussianBlur(2)).resize((100, 60)).convert("L")
small.save("small.jpg", quality=85)
image.save("drawn.png")
print(image.size, small.size, small.mode, image.getpixel((60, 60)))
