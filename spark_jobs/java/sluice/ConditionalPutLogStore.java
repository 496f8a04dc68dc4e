package sluice;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log on a store that has conditional PUTs: a commit is written if its name is free, and is never replaced.
 *
 * <p>A PUT whose outcome is not known, because the store answered 409 or 503 or not at all, is settled by reading the name back: the
 * commit is made if the name holds its bytes, lost to another if it holds others, and tried again if it is free. No two commits have
 * the same bytes, since each names its transaction.
 *
 * <p>Before each PUT the fences are asked. A fence stands around the tables of a lease and is open for as long as the lease surely
 * holds, by this JVM's own clocks: the one that nobody sets, which goes on while the process is stopped but not while the machine
 * sleeps, and the one that is set, which is right again soon after. Python opens it anew with each renewal.
 */
public final class ConditionalPutLogStore extends HadoopFileSystemLogStore {
    static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
    private static final int ATTEMPTS = 8;
    private static final long FIRST_PAUSE_MILLIS = 50;
    private static final Map<String, Fence> OPEN_UNTIL = new ConcurrentHashMap<>();
    private static final Map<String, FileStatus> LAST_COMMITS = new ConcurrentHashMap<>();

    /** Until when a fence is open, by either clock. */
    private record Fence(long nanos, long millis) {
        boolean isClosed() {
            return System.nanoTime() - nanos >= 0 || System.currentTimeMillis() >= millis;
        }
    }

    public ConditionalPutLogStore(Configuration conf) {
        super(conf);
    }

    /** Let commits below the root pass for so long from now. A closed fence, which has 0, is opened by nothing but this. */
    public static void openFence(String root, long milliseconds) {
        OPEN_UNTIL.put(
            asFence(root), new Fence(System.nanoTime() + milliseconds * 1_000_000, System.currentTimeMillis() + milliseconds));
    }

    /** Let no commit below the root pass. */
    public static void closeFence(String root) {
        openFence(root, 0);
    }

    /** Take the fence away: a lease that was given up in order guards nothing any more. */
    public static void removeFence(String root) {
        OPEN_UNTIL.remove(asFence(root));
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        FileSystem fs = path.getFileSystem(conf);
        byte[] content = join(actions);
        if (overwrite) { // _last_checkpoint, which may be stale
            checkFences(path);
            try (OutputStream out = fs.create(path, true)) {
                out.write(content);
            }
            return;
        }
        writeNew(fs, path, content);
        remember(path, content.length);
    }

    /** Write the file if its name is free, in one PUT whose outcome is known. Raises FileAlreadyExistsException if it holds other bytes. */
    static void writeNew(FileSystem fs, Path path, byte[] content) throws IOException {
        IOException last = null;
        long pause = FIRST_PAUSE_MILLIS;
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            checkFences(path);
            try {
                put(fs, path, content);
                return;
            } catch (IOException error) {
                last = error;
            }
            try {
                if (holds(fs, path, content)) {
                    return;
                }
                throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(last);
            } catch (FileAlreadyExistsException taken) {
                throw taken;
            } catch (FileNotFoundException free) {
                // It is free: the store took nothing.
            } catch (IOException unread) {
                last.addSuppressed(unread);
            }
            sleep(pause);
            pause *= 2;
        }
        throw last;
    }

    @Override
    public Iterator<FileStatus> listFrom(Path path, Configuration conf) throws IOException {
        Iterator<FileStatus> listed = super.listFrom(path, conf);
        FileStatus own = LAST_COMMITS.get(path.getParent().toString());
        if (own == null || own.getPath().getName().compareTo(path.getName()) < 0) {
            return listed;
        }
        // A store may list a name late. What this JVM committed it must see, or Delta takes its own commit for lost.
        List<FileStatus> all = new ArrayList<>();
        boolean missing = true;
        while (listed.hasNext()) {
            FileStatus one = listed.next();
            missing &= !one.getPath().getName().equals(own.getPath().getName());
            all.add(one);
        }
        if (missing && path.getFileSystem(conf).exists(own.getPath())) {
            all.add(own);
            all.sort(Comparator.comparing(one -> one.getPath().getName()));
        } else if (missing) { // the table was removed
            LAST_COMMITS.remove(path.getParent().toString(), own);
        }
        return all.iterator();
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return false;
    }

    /** Write the file, if its name is free, in one PUT. What fails before the end publishes nothing. */
    private static void put(FileSystem fs, Path path, byte[] content) throws IOException {
        FSDataOutputStreamBuilder<?, ?> file = fs.createFile(path).recursive().overwrite(false);
        file.must(CONDITIONAL, "true");
        OutputStream out = file.build();
        out.write(content); // S3A sends nothing before it is closed; and without the last part nothing is there
        out.close();
    }

    /** Whether the file has this content. Raises FileNotFoundException if there is no such file. */
    private static boolean holds(FileSystem fs, Path path, byte[] content) throws IOException {
        try (InputStream in = fs.open(path)) {
            return Arrays.equals(in.readNBytes(content.length + 1), content);
        }
    }

    private static byte[] join(Iterator<String> actions) throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            all.write(actions.next().getBytes(StandardCharsets.UTF_8));
            all.write('\n');
        }
        return all.toByteArray();
    }

    /** Raises IOException if the path lies behind a fence that is closed. */
    static void checkFences(Path path) throws IOException {
        String name = asFence(path.toString());
        for (Map.Entry<String, Fence> fence : OPEN_UNTIL.entrySet()) {
            if (name.startsWith(fence.getKey()) && fence.getValue().isClosed()) {
                throw new IOException("The lease on " + fence.getKey() + " is lost or could not be renewed in time: nothing is committed.");
            }
        }
    }

    private static void remember(Path path, long length) {
        FileStatus status = new FileStatus(length, false, 1, length, System.currentTimeMillis(), path);
        LAST_COMMITS.merge(path.getParent().toString(), status, ConditionalPutLogStore::later);
    }

    private static FileStatus later(FileStatus one, FileStatus other) {
        return one.getPath().getName().compareTo(other.getPath().getName()) < 0 ? other : one;
    }

    private static void sleep(long milliseconds) throws IOException {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException();
        }
    }

    /** The place with a slash at its end. S3 has two names, and a place one fence. */
    private static String asFence(String place) {
        String name = place.startsWith("s3a://") ? "s3" + place.substring(3) : place;
        return name.endsWith("/") ? name : name + "/";
    }
}
