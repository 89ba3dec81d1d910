import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

// As drive.mjs, with the client of the standard library as it comes: the protocol is
// its own choice, so it offers h2c.
public class Charge {
	static final HttpClient client = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(2)).build();

	public static void main(String[] args) throws Exception {
		URI charges = URI.create(args[0] + "/charges");
		ExecutorService workers = Executors.newFixedThreadPool(50);
		List<Future<?>> calls = new ArrayList<>();
		try (BufferedReader keys = new BufferedReader(new InputStreamReader(System.in))) {
			for (String line; (line = keys.readLine()) != null;) {
				String key = line;
				calls.add(workers.submit(() -> {
					String end = end(charges, key);
					synchronized (System.out) {
						System.out.println(key + "\t" + end);
					}
					return null;
				}));
			}
		}
		workers.shutdown();
		for (Future<?> call : calls) {
			call.get();
		}
	}

	static String end(URI charges, String key) throws Exception {
		HttpRequest request = HttpRequest.newBuilder(charges)
			.timeout(Duration.ofSeconds(2))
			.header("Idempotency-Key", key)
			.header("Content-Type", "application/json")
			.POST(HttpRequest.BodyPublishers.ofString("{\"order\":\"" + key + "\"}"))
			.build();
		for (;; Thread.sleep(100)) {
			HttpResponse<String> answer;
			CompletableFuture<HttpResponse<String>> call = client.sendAsync(request, HttpResponse.BodyHandlers.ofString());
			try {
				answer = call.get(3, TimeUnit.SECONDS); // the client's own timeout ends with the headers
			} catch (TimeoutException | ExecutionException failure) {
				if (!(failure instanceof TimeoutException) && !(failure.getCause() instanceof IOException)) {
					throw failure;
				}
				call.cancel(true);
				continue;
			}
			String body = answer.body();
			if (answer.statusCode() == 409 && body.contains("\"code\":\"held\"")) {
				return "held";
			}
			if (answer.statusCode() == 200) {
				return body.split("\"id\":\"")[1].split("\"")[0];
			}
			if (!List.of(409, 502, 503, 504).contains(answer.statusCode())) {
				throw new IllegalStateException(answer.statusCode() + " " + body);
			}
		}
	}
}
