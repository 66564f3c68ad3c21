/* The devices of this build: which there are, and what the `device` key means.
 */
#ifndef FERRY_TRAIN_DEVICES_H
#define FERRY_TRAIN_DEVICES_H

#include "base/str.h"
#include "config/config.h"
#include "gpu/cuda_info.h"
#include "gpu/cuda_library.h"
#include "gpu/cuda_probe.h"

/* The CUDA device first, where this build has it: auto takes the first that works. */
void devices_register(void);

/* What device_open is to open. ERR_UNSUPPORTED: cuda in a build without it. */
int devices_name(const char **name, const struct config *c);

/* Why a plan without a described machine is for the device that it is for, as one clause. ERR_NOMEM. */
int devices_plan_why(struct str *out, const struct config *c);

/* Before anything is opened: has each rank of this host a GPU, where GPUs compute? ERR_INPUT says how many
 * there are. From here on ranks take cores next to their GPUs (topology_set_rank_nodes). ERR_NOMEM. */
int devices_place_ranks(const struct config *c);

/* GPUs, driver and versions of CUDA; in a build without it `trouble` says so. */
void devices_cuda_info(struct cuda_info *info);

/* gpu/cuda_probe.h; ERR_UNSUPPORTED in a build without CUDA. */
int devices_cuda_probe(cuda_probe_fn *found, void *context, int64_t copy_bytes);

/* Name and version of a library that a run loads (mem_free); NULL where none is found or used, or without
 * memory. */
char *devices_cuda_library(enum cuda_library_kind kind);

#endif
