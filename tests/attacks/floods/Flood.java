var out = new java.io.FileOutputStream("/proc/self/fd/4");
var json = new StringBuilder("[");
for (int i = 0; i < 32700; i++) json.append(i == 0 ? "" : ",").append("{\"\":0}");
json.append("]");
var body = new java.io.ByteArrayOutputStream();
var fields = new java.io.DataOutputStream(body);
void field(java.io.DataOutputStream fields, char form, String key, byte[] value) throws Exception {
    fields.writeByte(form);
    fields.writeByte(key.length());
    fields.writeInt(value.length);
    fields.writeBytes(key);
    fields.write(value);
}
field(fields, 't', "kind", "result".getBytes());
field(fields, 't', "execution", "1".getBytes());
field(fields, 'j', "a/b", json.toString().getBytes());
var whole = new java.io.ByteArrayOutputStream();
new java.io.DataOutputStream(whole).writeInt(body.size());
whole.write(body.toByteArray());
var frame = whole.toByteArray();
System.out.println("flood");
for (int i = 0; i < 64; i++) out.write(frame);
