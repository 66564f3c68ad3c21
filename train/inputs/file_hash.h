/* The checksum of a file. Two files with equal checksum and length count as equal. */
#ifndef FERRY_TRAIN_INPUTS_FILE_HASH_H
#define FERRY_TRAIN_INPUTS_FILE_HASH_H

#include <stdint.h>

/* XXH3 64 of all bytes, read in small pieces. ERR_INPUT, ERR_IO, ERR_NOMEM. */
int file_hash(const char *path, uint64_t *hash, int64_t *len_bytes);

#endif
