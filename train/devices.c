/* Which devices this build has, and which one a run takes. */
#include "train/devices.h"

#include "base/err.h"
#include "base/mem.h"
#include "device/backend.h"

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
	static const char *const names[] = {
	        [CONFIG_DEVICE_AUTO] = "auto",
	        [CONFIG_DEVICE_CUDA] = "cuda",
	        [CONFIG_DEVICE_HOST] = "host",
	};

	*name = names[c->device];
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
		str_printf(out, "device=auto, and %s", info->trouble);
	else
		str_printf(out,
		        "without machine=FILE, device=auto plans for the CPU, but a run takes the GPU; "
		        "device=cuda plans for the %s here",
		        info->gpu[0].name);
	mem_free(info);
	return str_check(out);
}
