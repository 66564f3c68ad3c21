/* Finds the directory of a hub id ("Qwen/Qwen2.5-0.5B") in this machine's HuggingFace cache.
 *
 * The cache is HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub. There models--ORG--NAME/refs/main contains a commit, and snapshots/COMMIT has
 * its files as links into blobs. Source: huggingface_hub's documentation, "Understand caching".
 */
#ifndef FERRY_CHECKPOINT_HF_HUB_CACHE_H
#define FERRY_CHECKPOINT_HF_HUB_CACHE_H

enum hub_kind { HUB_MODEL, HUB_DATASET };

/* 1 if the text has the form of a hub id: ORG/NAME or NAME, of letters, digits, '.', '_' and '-'. The caller
 * must check for a local path first. */
int hub_is_id(const char *text);

/* Sets *dir (mem_free) to the snapshot of `id`: that of its main branch, or the only one. NULL: not in the
 * cache. `id` may end in @REVISION, a branch, a tag or a commit. ERR_INPUT if none of several snapshots is
 * known to be main's, or if REVISION is missing; the text lists the snapshots. */
int hub_cache_find(char **dir, const char *id, enum hub_kind kind);

#endif
