package sluice;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.FileAlreadyExistsException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * A stream's checkpoint on a store that has conditional PUTs. Spark's own ways write a file elsewhere and rename it, which on a store
 * is a copy of some ten requests and keeps nobody from replacing a batch's offsets.
 *
 * <p>What must be new, the offsets and commits of batches, is one conditional PUT like a commit of Delta's. What may be replaced, files of
 * state, goes to the store as it is written and is there when it is closed, or not at all. No folders are made: a store has none. The
 * fences of {@link ConditionalPutLogStore} hold here, too.
 */
public final class ConditionalPutCheckpoints implements CheckpointFileManager {
    private final FileSystem fs;
    private final Path root;

    public ConditionalPutCheckpoints(Path root, Configuration conf) throws IOException {
        this.fs = root.getFileSystem(conf);
        this.root = root;
    }

    @Override
    public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
        return overwriteIfPossible ? new Replacing(path) : new New(path);
    }

    @Override
    public FSDataInputStream open(Path path) {
        return asked(() -> fs.open(path));
    }

    @Override
    public FileStatus[] list(Path path, PathFilter filter) {
        return asked(() -> {
            try {
                return fs.listStatus(path, filter);
            } catch (FileNotFoundException nothing) {
                return new FileStatus[0];
            }
        });
    }

    @Override
    public void mkdirs(Path path) {}

    @Override
    public boolean exists(Path path) {
        return asked(() -> fs.exists(path));
    }

    @Override
    public void delete(Path path) {
        asked(() -> fs.delete(path, true));
    }

    @Override
    public boolean isLocal() {
        return false;
    }

    @Override
    public Path createCheckpointDirectory() {
        return fs.makeQualified(root);
    }

    /** A part of a large file is sent before the end; what is not closed is never there. */
    private OutputStream startReplacing(Path path) {
        return asked(() -> {
            FSDataOutputStreamBuilder<?, ?> file = fs.createFile(path).recursive().overwrite(true);
            file.opt("fs.option.create.performance", "true");
            return (OutputStream) file.build();
        });
    }

    private interface Question<T> {
        T ask() throws IOException;
    }

    /** Scala declares no errors, and the callers catch IOException all the same. */
    private static <T> T asked(Question<T> question) {
        try {
            return question.ask();
        } catch (IOException error) {
            throw ConditionalPutCheckpoints.<RuntimeException>unchanged(error);
        }
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> E unchanged(Throwable error) throws E {
        throw (E) error;
    }

    /** A file that is there once, with these bytes, when the stream is closed. */
    private final class New extends CancellableFSDataOutputStream {
        private final Path path;
        private boolean ended;

        New(Path path) {
            super(new ByteArrayOutputStream());
            this.path = path;
        }

        @Override
        public void close() throws IOException {
            if (ended) {
                return;
            }
            ended = true;
            flush();
            try {
                ConditionalPutLogStore.writeNew(fs, path, ((ByteArrayOutputStream) underlyingStream()).toByteArray());
            } catch (FileAlreadyExistsException taken) { // Spark knows Hadoop's
                throw (IOException) new org.apache.hadoop.fs.FileAlreadyExistsException(path.toString()).initCause(taken);
            }
        }

        @Override
        public void cancel() {
            ended = true;
        }
    }

    /** A file that takes the place of what was there when the stream is closed. */
    private final class Replacing extends CancellableFSDataOutputStream {
        private final Path path;
        private boolean ended;

        Replacing(Path path) {
            super(ConditionalPutCheckpoints.this.startReplacing(path));
            this.path = path;
        }

        @Override
        public void close() throws IOException {
            if (ended) {
                return;
            }
            ended = true;
            ConditionalPutLogStore.checkFences(path);
            super.close();
        }

        @Override
        public void cancel() {
            if (!ended) {
                ended = true;
                ((FSDataOutputStream) underlyingStream()).abort();
            }
        }
    }
}
