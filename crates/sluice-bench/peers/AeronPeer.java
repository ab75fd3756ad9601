// SPDX-License-Identifier: MIT OR Apache-2.0
import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.FragmentAssembler;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.BufferClaim;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.Header;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.agrona.DirectBuffer;
import io.aeron.RethrowingErrorHandler;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.BusySpinIdleStrategy;
import org.agrona.concurrent.ShutdownSignalBarrier;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * One side of the measurement of Aeron, or its media driver. The protocol on standard output is that of the measured processes
 * of the benchmark: 'r' when ready, 'd' and the numbers when done, 'f' and the reason after a failure. A byte on standard input
 * is the start signal.
 *
 * The measurement is the same as for the other mechanisms, in the same order: see the suites rtt.rs, stream.rs and load.rs.
 */
public final class AeronPeer implements FragmentHandler {
    private static final String CHANNEL = "aeron:ipc";
    private static final int TERM_LENGTH = 16 << 20;
    /** The maximum: messages up to it are written in place, longer ones in few fragments. */
    private static final int MTU = 65504;
    private static final int FRAGMENT_LIMIT = 32;
    /** Enough for the just-in-time compiler to compile the measured code. */
    private static final long WARM_UP_NS = 1_500_000_000L;
    /** After the pause before the start, to warm up the caches again. */
    private static final int WARM_UP_TRIPS = 200;
    private static final int WARM_UP_BATCH = 1000;
    private static final int BYTES_PER_CLOCK_READ = 64 * 1024;
    private static final long WARM_UP_STREAM_NS = 50_000_000L;

    private final FileOutputStream report = new FileOutputStream(FileDescriptor.out);
    private final FileInputStream start = new FileInputStream(FileDescriptor.in);
    private final int size;
    private final byte[] sent;
    private final byte[] received;
    private final UnsafeBuffer toSend;
    private final UnsafeBuffer toReturn;
    /** Only its length is significant. */
    private final UnsafeBuffer control;
    private final BufferClaim claim = new BufferClaim();
    private final FragmentHandler handler = new FragmentAssembler(this);
    private ExclusivePublication publication;
    private Subscription subscription;

    /** Bytes received since the begin of the measurement. */
    private long bytes;
    private int lastLength;
    private long cpuAtBegin;
    /** Of a receiver in the load suite. */
    private LoadSamples load;
    private boolean ended;
    private boolean replies;
    /** The position in the stream from which bytes are compared with the pattern; -1 for no comparison. */
    private long position = -1;

    private AeronPeer(final int size) {
        this.size = size;
        sent = new byte[size];
        received = new byte[size];
        toSend = new UnsafeBuffer(sent);
        toReturn = new UnsafeBuffer(received);
        control = new UnsafeBuffer(new byte[size + 2]);
    }

    public static void main(final String[] args) throws Exception {
        final String role = args[0];
        final String directory = args[1];
        if (role.equals("driver")) {
            runDriver(directory, args[2].equals("spin"));
            return;
        }
        final AeronPeer peer = new AeronPeer(Integer.parseInt(args[3]));
        try {
            peer.run(role, directory, args);
        } catch (final Throwable reason) {
            peer.report.write(("f" + reason).getBytes(StandardCharsets.UTF_8));
        }
        // Without closing the client: the peer may have ended, and the driver with it.
        Runtime.getRuntime().halt(0);
    }

    private static void runDriver(final String directory, final boolean spins) {
        final MediaDriver.Context context = new MediaDriver.Context()
            .aeronDirectoryName(directory)
            .threadingMode(ThreadingMode.SHARED)
            .sharedIdleStrategy(spins ? BusySpinIdleStrategy.INSTANCE : new BackoffIdleStrategy())
            .ipcTermBufferLength(TERM_LENGTH)
            .ipcMtuLength(MTU);
        MediaDriver.launch(context);
        // The driver runs until it is killed.
        new ShutdownSignalBarrier().await();
    }

    /** Pins the calling thread, but no other thread of the Java VM. */
    private static void pin(final String cpu) throws IOException, InterruptedException {
        final String thread = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
        final Process taskset = new ProcessBuilder("taskset", "--cpu-list", "--pid", cpu, thread)
            .redirectErrorStream(true)
            .start();
        final String message = new String(taskset.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (taskset.waitFor() != 0) {
            throw new IOException("cannot pin a thread to processor " + cpu + ": " + message.trim());
        }
    }

    private void run(final String role, final String directory, final String[] args)
        throws IOException, InterruptedException {
        final boolean first = role.equals("request") || role.startsWith("send");
        final Aeron aeron = Aeron.connect(new Aeron.Context()
            .aeronDirectoryName(directory)
            .subscriberErrorHandler(RethrowingErrorHandler.INSTANCE));
        publication = aeron.addExclusivePublication(CHANNEL, first ? 1 : 2);
        subscription = aeron.addSubscription(CHANNEL, first ? 2 : 1);
        while (!publication.isConnected() || !subscription.isConnected()) {
            Thread.onSpinWait();
        }
        // Only now: a thread that the client starts inherits the processors of this one.
        pin(args[2]);
        switch (role) {
            case "request": request(Integer.parseInt(args[4]), Long.parseLong(args[5])); break;
            case "reply": reply(); break;
            case "send": send(Long.parseLong(args[4])); break;
            case "receive": receive(); break;
            case "send-pattern": sendPattern(Integer.parseInt(args[4])); break;
            case "receive-pattern": receivePattern(Integer.parseInt(args[4])); break;
            case "send-load": sendLoad(Long.parseLong(args[4]), Long.parseLong(args[7])); break;
            case "receive-load":
                receiveLoad(Long.parseLong(args[4]), Long.parseLong(args[5]), Long.parseLong(args[6]));
                break;
            default: throw new IllegalArgumentException("unknown role " + role);
        }
    }

    private void request(final int max, final long duration) throws IOException {
        final long[] samples = new long[max];
        final long warm = System.nanoTime() + WARM_UP_NS;
        while (System.nanoTime() < warm) {
            trips(samples, Math.min(max, WARM_UP_BATCH), warm);
        }
        ready();
        awaitStart();
        put(control, begin());
        trips(samples, Math.min(max, WARM_UP_TRIPS), Long.MAX_VALUE);
        final long cpu = cpu();
        final long begin = System.nanoTime();
        final int count = trips(samples, max, begin + duration);
        final long elapsed = System.nanoTime() - begin;
        final long used = cpu() - cpu;
        put(control, end());
        final long[] numbers = new long[2 + count];
        numbers[0] = elapsed;
        numbers[1] = used;
        System.arraycopy(samples, 0, numbers, 2, count);
        done(numbers);
    }

    /** Round trips up to this number or this time. */
    private int trips(final long[] samples, final int max, final long until) {
        int count = 0;
        long now = 0;
        while (count < max && now < until) {
            Arrays.fill(sent, (byte)count);
            final long before = System.nanoTime();
            put(toSend, size);
            next();
            now = System.nanoTime();
            check(count);
            samples[count++] = now - before;
        }
        return count;
    }

    private void check(final int number) {
        if (lastLength != size) {
            throw new IllegalStateException("the peer ended during a round trip");
        }
        if (!Arrays.equals(received, sent)) {
            throw new IllegalStateException("message " + number + " came back changed");
        }
    }

    private void reply() throws IOException {
        replies = true;
        ready();
        while (!ended) {
            poll();
        }
        done(cpu() - cpuAtBegin);
    }

    private void send(final long duration) throws IOException {
        Arrays.fill(sent, (byte)0xa5);
        final long warm = System.nanoTime() + WARM_UP_NS;
        while (System.nanoTime() < warm) {
            sendFor(WARM_UP_STREAM_NS);
        }
        ready();
        awaitStart();
        put(control, begin());
        final long cpu = cpu();
        final long begin = System.nanoTime();
        final long messages = sendFor(duration);
        final long used = cpu() - cpu;
        put(control, end());
        done(messages, begin, used);
    }

    private long sendFor(final long duration) {
        final int perClockRead = Math.max(1, Math.min(256, BYTES_PER_CLOCK_READ / size));
        final long begin = System.nanoTime();
        long messages = 0;
        while (System.nanoTime() - begin < duration) {
            for (int i = 0; i < perClockRead; i++) {
                put(toSend, size);
            }
            messages += perClockRead;
        }
        return messages;
    }

    private void receive() throws IOException {
        ready();
        while (!ended) {
            poll();
        }
        final long end = System.nanoTime();
        done(bytes, end, cpu() - cpuAtBegin);
    }

    private void sendPattern(final int messages) throws IOException {
        ready();
        awaitStart();
        for (int number = 0; number < messages; number++) {
            pattern((long)number * size, sent);
            put(toSend, size);
        }
        put(control, end());
        done();
    }

    private void receivePattern(final int messages) throws IOException {
        position = 0;
        ready();
        while (!ended) {
            poll();
        }
        if (position != (long)messages * size) {
            throw new IllegalStateException(position / size + " of " + messages + " messages arrived");
        }
        done();
    }

    /** Sends messages at a constant rate, each with its due time and its number. */
    private void sendLoad(final long messages, final long rate) throws IOException {
        final long warm = System.nanoTime() + WARM_UP_NS;
        while (System.nanoTime() < warm) {
            // Long enough that the receiver also runs what it does after its warm-up.
            sendDue(rate / 25, rate);
        }
        ready();
        awaitStart();
        put(control, begin());
        sendDue(messages, rate);
        put(control, end());
        done();
    }

    private void sendDue(final long messages, final long rate) {
        final double interval = 1e9 / rate;
        final long begin = System.nanoTime();
        for (long number = 0; number < messages; number++) {
            final long due = begin + (long)(number * interval);
            toSend.putLong(0, due);
            toSend.putLong(Long.BYTES, number);
            while (System.nanoTime() < due) {
                Thread.onSpinWait();
            }
            put(toSend, size);
        }
    }

    private void receiveLoad(final long messages, final long warmUp, final long stride) throws IOException {
        load = new LoadSamples((int)(messages / stride) + 1, warmUp, stride);
        ready();
        while (!ended) {
            poll();
        }
        final long[] numbers = new long[3 + load.count];
        numbers[0] = Math.max(0, load.arrived - warmUp);
        numbers[1] = System.nanoTime() - load.measuredFrom;
        numbers[2] = cpu() - cpuAtBegin;
        System.arraycopy(load.samples, 0, numbers, 3, load.count);
        done(numbers);
    }

    /** The latencies after the warm-up of the last series of messages; each series begins with number 0. */
    private final class LoadSamples {
        private final long[] samples;
        private final long warmUp;
        private final long stride;
        private final UnsafeBuffer message = new UnsafeBuffer(received);
        private int count;
        private long arrived;
        private long measuredFrom = System.nanoTime();

        private LoadSamples(final int max, final long warmUp, final long stride) {
            samples = new long[max];
            this.warmUp = warmUp;
            this.stride = stride;
        }

        private void add() {
            final long now = System.nanoTime();
            final long number = message.getLong(Long.BYTES);
            if (number == 0) {
                arrived = 0;
                count = 0;
            }
            if (number != arrived) {
                throw new IllegalStateException("message " + number + " arrived instead of " + arrived);
            }
            arrived++;
            if (arrived == warmUp) {
                measuredFrom = now;
                cpuAtBegin = cpu();
            }
            if (number >= warmUp && number % stride == 0 && count < samples.length) {
                samples[count++] = Math.max(0, now - message.getLong(0));
            }
        }
    }

    /** The pattern of stream.rs: each byte is a hash of its position. */
    private static void pattern(final long position, final byte[] into) {
        for (int i = 0; i < into.length; i++) {
            final long spread = (position + i) * 0x9e3779b97f4a7c15L;
            into[i] = (byte)(((spread ^ (spread >>> 29)) * 0xd6e8feb86659fd93L) >>> 56);
        }
    }

    /** The control messages before and after the measurement differ from others in their length. */
    private int begin() {
        return size + 1;
    }

    private int end() {
        return size + 2;
    }

    private void put(final UnsafeBuffer from, final int length) {
        long result;
        if (length <= publication.maxPayloadLength()) {
            while ((result = publication.tryClaim(length, claim)) < 0) {
                waitForSpace(result);
            }
            claim.buffer().putBytes(claim.offset(), from, 0, length);
            claim.commit();
        } else {
            while ((result = publication.offer(from, 0, length)) < 0) {
                waitForSpace(result);
            }
        }
    }

    private static void waitForSpace(final long result) {
        if (result != Publication.BACK_PRESSURED && result != Publication.ADMIN_ACTION) {
            throw new IllegalStateException("cannot send: " + Publication.errorString(result));
        }
        Thread.onSpinWait();
    }

    private void next() {
        lastLength = 0;
        while (lastLength == 0) {
            poll();
        }
    }

    private void poll() {
        if (subscription.poll(handler, FRAGMENT_LIMIT) == 0) {
            Thread.onSpinWait();
        }
    }

    @Override
    public void onFragment(final DirectBuffer buffer, final int offset, final int length, final Header header) {
        lastLength = length;
        if (length == size) {
            buffer.getBytes(offset, received);
            bytes += length;
            if (replies) {
                put(toReturn, size);
            } else if (load != null) {
                load.add();
            } else if (position >= 0) {
                compare();
            }
        } else if (length == begin()) {
            bytes = 0;
            cpuAtBegin = cpu();
        } else if (length == end()) {
            ended = true;
        } else {
            throw new IllegalStateException("a message has " + length + " bytes instead of " + size);
        }
    }

    private void compare() {
        pattern(position, sent);
        if (!Arrays.equals(received, sent)) {
            throw new IllegalStateException("message " + position / size + " arrived damaged");
        }
        position += size;
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean)ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private void ready() throws IOException {
        // The first call loads classes, which would be measured otherwise.
        cpu();
        report.write('r');
    }

    private void awaitStart() throws IOException {
        if (start.read() < 0) {
            throw new IOException("the benchmark ended before the start");
        }
    }

    private void done(final long... numbers) throws IOException {
        final ByteBuffer message = ByteBuffer.allocate(1 + Long.BYTES * numbers.length).order(ByteOrder.LITTLE_ENDIAN);
        message.put((byte)'d');
        for (final long number : numbers) {
            message.putLong(number);
        }
        report.write(message.array());
    }
}
