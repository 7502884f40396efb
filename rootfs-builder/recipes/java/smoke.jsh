import java.net.http.HttpClient;
import java.nio.file.*;
import java.util.stream.*;
import javax.net.ssl.*;

record Point(int x, int y) {}
var points = List.of(new Point(1, 2), new Point(3, 4));
int total = points.stream().mapToInt(p -> p.x() * p.y()).sum();
String kind = switch (total) { case 14 -> "right"; default -> "wrong"; };
Files.writeString(Path.of("note.txt"), kind);
boolean kept = Files.readString(Path.of("note.txt")).equals("right");
var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
trust.init((java.security.KeyStore) null);
int authorities = ((X509TrustManager) trust.getTrustManagers()[0]).getAcceptedIssuers().length;
boolean client = HttpClient.newHttpClient() != null;
/exit kept && client && authorities > 50 ? 0 : 1
