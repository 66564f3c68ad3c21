/* The HuggingFace cache of this machine: where the directory of a hub id ("Qwen/Qwen2.5-0.5B") lies, if it
 * was downloaded.
 *
 * The cache is HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub. In it models--ORG--NAME/refs/main holds the commit whose files stand in
 * snapshots/COMMIT, as links into blobs. Source: huggingface_hub's documentation, "Understand caching".
 */
#ifndef FERRY_CHECKPOINT_HUB_CACHE_H
#define FERRY_CHECKPOINT_HUB_CACHE_H

enum hub_kind { HUB_MODEL, HUB_DATASET };

/* Could be a hub id: ORG/NAME or NAME, of letters, digits, '.', '_' and '-'. Whether a local path is meant is
 * for the caller to see first. */
int hub_is_id(const char *text);

/* *dir (mem_free) is the snapshot of `id`, of its main branch, or the only one that there is; NULL: not in
 * the cache. `id` may end in @REVISION, a branch, a tag or a commit. ERR_INPUT: several snapshots, and none
 * is known to be main's, or REVISION is not there; the message lists what is. */
int hub_cache_find(char **dir, const char *id, enum hub_kind kind);

#endif
