/* Computes the checksum of a file. */
#include "train/inputs/file_hash.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"

#include <unistd.h>
#include <xxhash.h>

enum { PIECE_BYTES = 256 << 10 };

int file_hash(const char *path, uint64_t *hash, int64_t *len_bytes)
{
	XXH3_state_t *state = NULL;
	char *piece = NULL;
	int fd = file_open_read(path, len_bytes), rc = fd < 0 ? fd : 0;

	if (!rc) {
		state = XXH3_createState();
		piece = mem_alloc(PIECE_BYTES, 1);
		rc = state && piece ? 0 : err_set(ERR_NOMEM, "out of memory: the checksum of %s", path);
	}
	if (!rc)
		XXH3_64bits_reset(state);
	for (int64_t at = 0; !rc && at < *len_bytes; at += PIECE_BYTES) {
		size_t bytes = (size_t)min_i64(PIECE_BYTES, *len_bytes - at);

		rc = file_read_at(fd, path, piece, bytes, at);
		if (!rc)
			XXH3_64bits_update(state, piece, bytes);
	}
	if (!rc)
		*hash = XXH3_64bits_digest(state);
	if (fd >= 0)
		close(fd);
	mem_free(piece);
	XXH3_freeState(state);
	return rc;
}
