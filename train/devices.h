/* The devices of this build, and the meaning of the `device` key. */
#ifndef FERRY_TRAIN_DEVICES_H
#define FERRY_TRAIN_DEVICES_H

#include "base/str.h"
#include "config/config.h"
#include "gpu/cuda_info.h"
#include "gpu/cuda_library.h"
#include "gpu/cuda_probe.h"

/* Registers the devices, CUDA first if this build has it: auto takes the first that works. */
void devices_register(void);

/* The name for device_open. ERR_UNSUPPORTED: cuda in a build without it. */
int devices_name(const char **name, const struct config *c);

/* Appends, as one clause, why a plan without a machine file uses its device. ERR_NOMEM. */
int devices_plan_why(struct str *out, const struct config *c);

/* Call before anything is opened. Checks that each rank of this host has a GPU if GPUs compute; ERR_INPUT
 * has the number of GPUs. From here on ranks use cores next to their GPUs (topology_set_rank_nodes) and
 * leave one to NCCL. ERR_NOMEM. */
int devices_place_ranks(const struct config *c);

/* GPUs, driver and versions of CUDA; in a build without it `trouble` says so. */
void devices_cuda_info(struct cuda_info *info);

/* gpu/cuda_probe.h, with bench_count and attention of c; ERR_UNSUPPORTED in a build without CUDA. */
int devices_cuda_probe(cuda_probe_fn *found, void *context, const struct config *c);

/* Name and version of a library that a run loads (mem_free); NULL if it is not found or not used, or if out
 * of memory. */
char *devices_cuda_library(enum cuda_library_kind kind);

#endif
