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
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;

/**
 * A stream's checkpoint on a store that has conditional PUTs. Spark's own ways write a file elsewhere and rename it, which on a store
 * is a copy of some ten requests and keeps nobody from replacing a batch's offsets.
 *
 * <p>What must be new, the offsets and commits of batches, is one conditional PUT like a commit of Delta's. What may be replaced, files of
 * state, goes to the store as it is written and is there when it is closed, or not at all. No folders are made: a store has none. The
 * fences of {@link ConditionalPutLogStore} hold here, too.
 *
 * <p>A session may have tables on a disk as well. What cannot put conditionally is left to Spark's usual way.
 */
public final class ConditionalPutCheckpoints implements CheckpointFileManager {
    private final CheckpointFileManager files;

    public ConditionalPutCheckpoints(Path root, Configuration conf) throws IOException {
        FileSystem fs = root.getFileSystem(conf);
        boolean conditional = fs.hasPathCapability(root, ConditionalPutLogStore.CONDITIONAL);
        files = conditional ? new OnStore(fs, root) : new FileContextBasedCheckpointFileManager(root, conf);
    }

    @Override
    public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
        return files.createAtomic(path, overwriteIfPossible);
    }

    @Override
    public FSDataInputStream open(Path path) {
        return files.open(path);
    }

    @Override
    public FileStatus[] list(Path path, PathFilter filter) {
        return files.list(path, filter);
    }

    @Override
    public void mkdirs(Path path) {
        files.mkdirs(path);
    }

    @Override
    public boolean exists(Path path) {
        return files.exists(path);
    }

    @Override
    public void delete(Path path) {
        files.delete(path);
    }

    @Override
    public boolean isLocal() {
        return files.isLocal();
    }

    @Override
    public Path createCheckpointDirectory() {
        return files.createCheckpointDirectory();
    }

    @Override
    public void close() {
        files.close();
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

    private static final class OnStore implements CheckpointFileManager {
        private final FileSystem fs;
        private final Path root;

        OnStore(FileSystem fs, Path root) {
            this.fs = fs;
            this.root = root;
        }

        @Override
        public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
            return overwriteIfPossible ? new ReplacingFile(fs, path) : new NewFile(fs, path);
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
    }

    /** A file that is there once, with these bytes, when the stream is closed. */
    private static final class NewFile extends CancellableFSDataOutputStream {
        private final FileSystem fs;
        private final Path path;
        private boolean ended;

        NewFile(FileSystem fs, Path path) {
            super(new ByteArrayOutputStream());
            this.fs = fs;
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
    private static final class ReplacingFile extends CancellableFSDataOutputStream {
        private final Path path;
        private boolean ended;

        ReplacingFile(FileSystem fs, Path path) {
            super(start(fs, path));
            this.path = path;
        }

        /** A part of a large file is sent before the end; what is not closed is never there. */
        private static OutputStream start(FileSystem fs, Path path) {
            return asked(() -> {
                FSDataOutputStreamBuilder<?, ?> file = fs.createFile(path).recursive().overwrite(true);
                file.opt("fs.option.create.performance", "true");
                return (OutputStream) file.build();
            });
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
