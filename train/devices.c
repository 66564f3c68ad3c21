/* Registers the devices of this build, and chooses one for a run. */
#include "train/devices.h"

#include "base/err.h"
#include "base/mem.h"
#include "comm/launch.h"
#include "comm/world.h"
#include "device/backend.h"
#include "host/topology.h"

#include <stdlib.h>

void devices_register(void)
{
#ifdef FERRY_HAS_CUDA
	device_register(&backend_cuda);
#endif
	device_register(&backend_host);
	device_register(&backend_meta);
}

int devices_name(const char **name, const struct config *c)
{
	static const enum device_kind kinds[] = {
	        [CONFIG_DEVICE_CUDA] = DEVICE_CUDA,
	        [CONFIG_DEVICE_HOST] = DEVICE_HOST,
	};

	*name = c->device == CONFIG_DEVICE_AUTO ? "auto" : device_facts_of(kinds[c->device])->name;
#ifndef FERRY_HAS_CUDA
	if (c->device == CONFIG_DEVICE_CUDA)
		return err_set(ERR_UNSUPPORTED, "device=cuda: this build has no CUDA device, because nvcc "
		                                "was not found when it was built; use device=host");
#endif
	return 0;
}

void devices_cuda_info(struct cuda_info *info)
{
#ifdef FERRY_HAS_CUDA
	cuda_info_read(info);
#else
	*info = (struct cuda_info){.trouble = "this build has no CUDA device"};
#endif
}

/* Whether the launcher gave each rank its own GPU; then a rank sees no other. */
static int sees_its_own(const struct cuda_info *info)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct launch launch;

	launch_read(&launch);
	return info->gpu_count == 1 && visible && *visible && !launch.is_local;
}

int devices_place_ranks(const struct config *c)
{
	int nodes[TOPOLOGY_RANKS_MAX], ranks = world_self()->local_size, rc = 0;
	struct cuda_info *info;

	if (world_self()->size == 1 || c->device == CONFIG_DEVICE_HOST)
		return 0;
	info = mem_alloc(1, sizeof(*info));
	if (!info)
		return ERR_NOMEM;
	devices_cuda_info(info);
	if (!info->trouble[0])
		topology_leave_a_core();
	if (info->trouble[0] || ranks == 1 || sees_its_own(info)) {
		mem_free(info); /* the CPU computes, or the launcher placed the ranks */
		return 0;
	}
	if (ranks > info->gpu_count)
		rc = err_set(ERR_INPUT,
		        "%d ranks on this host need %d GPUs, and there %s %d; start %d here, or set "
		        "device=host to train on the CPU",
		        ranks, ranks, info->gpu_count == 1 ? "is" : "are", info->gpu_count, info->gpu_count);
	for (int r = 0; r < ranks && r < TOPOLOGY_RANKS_MAX && !rc; r++)
		nodes[r] = info->gpu[r].numa_node;
	if (!rc)
		topology_set_rank_nodes(nodes, ranks);
	mem_free(info);
	return rc;
}

int devices_cuda_probe(cuda_probe_fn *found, void *context, const struct config *c)
{
#ifdef FERRY_HAS_CUDA
	return cuda_probe(found, context, c->bench_count, (enum device_attention)c->attention);
#else
	(void)found;
	(void)context;
	(void)c;
	return err_set(ERR_UNSUPPORTED, "bench gpu: this build has no CUDA device");
#endif
}

char *devices_cuda_library(enum cuda_library_kind kind)
{
#ifdef FERRY_HAS_CUDA
	return cuda_library_describe(kind);
#else
	(void)kind;
	return NULL;
#endif
}

int devices_plan_why(struct str *out, const struct config *c)
{
	struct cuda_info *info;

	if (c->device != CONFIG_DEVICE_AUTO) {
		str_printf(out, "device=%s", config_text(c, "device"));
		return str_check(out);
	}
	info = mem_alloc(1, sizeof(*info));
	if (!info)
		return ERR_NOMEM;
	devices_cuda_info(info);
	if (info->trouble[0])
		str_printf(out, "device=auto, and %s%s", info->trouble,
		        config_was_set(c, "vram_budget") ? "; for a GPU add device=cuda" : "");
	else
		str_printf(out,
		        "without machine=FILE, device=auto plans for the CPU, but a run takes the GPU; "
		        "device=cuda plans for the %s here",
		        info->gpu[0].name);
	mem_free(info);
	return str_check(out);
}
