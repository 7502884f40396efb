import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;

/**
 * Makes a Java key store of certificates in PEM. keytool would write the date of
 * each into it, and take a second for each; here the date is 1970, so that the
 * same certificates make the same file.
 */
public class Certificates {
    public static void main(String[] arguments) throws Exception {
        Map<String, byte[]> certificates = new TreeMap<>();
        try (var file = new FileInputStream(arguments[0])) {
            var factory = CertificateFactory.getInstance("X.509");
            for (Certificate certificate : factory.generateCertificates(file)) {
                byte[] encoded = certificate.getEncoded();
                byte[] digest = MessageDigest.getInstance("SHA-256").digest(encoded);
                certificates.put(HexFormat.of().formatHex(digest), encoded);
            }
        }
        var bytes = new ByteArrayOutputStream();
        var out = new DataOutputStream(bytes);
        out.writeInt(0xFEEDFEED);
        out.writeInt(2);
        out.writeInt(certificates.size());
        for (var entry : certificates.entrySet()) {
            out.writeInt(2);
            out.writeUTF(entry.getKey());
            out.writeLong(0);
            out.writeUTF("X.509");
            out.writeInt(entry.getValue().length);
            out.write(entry.getValue());
        }
        // The format's own check, with the password that every cacerts has.
        var check = MessageDigest.getInstance("SHA-1");
        check.update("changeit".getBytes(StandardCharsets.UTF_16BE));
        check.update("Mighty Aphrodite".getBytes(StandardCharsets.UTF_8));
        check.update(bytes.toByteArray());
        out.write(check.digest());
        Files.write(Path.of(arguments[1]), bytes.toByteArray());
    }
}
