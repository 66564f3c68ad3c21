/* A machine to plan for, described by a small YAML file (examples/machines has some).
 *
 *     name: PC with one RTX 4090
 *     gpus: 1                        all of one kind, one rank for each. 0: the host computes
 *     gpu:
 *       memory: 24GiB
 *       bf16_tflops: 165             dense, fp32 accumulation, by the maker's data sheet
 *       fp32_tflops: 82
 *       memory_gbps: 1008            in 1e9 bytes/s, like all rates here
 *       h2d_gbps: 25                 from host to one GPU
 *       d2h_gbps: 25
 *       copies_gbps: 40              sum of both ways at once, if one slows the other
 *       launch_us: 2.5               overhead of a kernel
 *       call_us: 12                  overhead of a host function between GPU work
 *       attention_tflops: 80         rate of attention; default: that of other products
 *       attention_grad_tflops: 60    of its backward; default: attention_tflops
 *       link_gbps: 25                between GPUs, for each GPU, each way
 *       link_latency_us: 3.4         of a message between two GPUs
 *       uplink_gbps: 25              from a switch to the host, each way
 *       uplink_gpus: 2               GPUs that share a switch
 *       matmul_share: 0.7            share of the peak in large matrix products
 *       memory_share: 0.85           share of memory_gbps in other kernels
 *     host:
 *       memory: 128GiB
 *       memory_gbps: 60              read and written, all NUMA nodes together
 *       update_gbps: 50              rate of AdamW
 *       pin_gbps: 3                  allocating and pinning memory at the start
 *       copies_beside_update: 0.5    share of their rate that copies keep while AdamW runs
 *       sockets: 2                   fewer ranks than that have one socket's memory each, not all
 *       gflops: 1000                 fp32, all cores together; used with gpus: 0
 *       reserve: 4GiB                for the system and other programs
 *     network:                       to other machines of this kind
 *       gbps: 25                     all adapters together, each way
 *       latency_us: 14
 *     disk:
 *       read_gbps: 6
 *       write_gbps: 5
 *
 * Every part may have a note, `source`. Write measured rates with a share of 1.
 */
#ifndef FERRY_PLACEMENT_MACHINE_H
#define FERRY_PLACEMENT_MACHINE_H

#include "config/config.h"
#include "device/device.h"

struct machine {
	char *name;
	int64_t gpu_count;
	int64_t gpu_memory_bytes, host_memory_bytes, host_reserve_bytes;
	double bf16_tflops, fp32_tflops, gpu_memory_gbps, h2d_gbps, d2h_gbps, link_gbps;
	double link_latency_us, uplink_gbps; /* uplink 0: no shared switch */
	int64_t uplink_gpus;
	double network_gbps, network_latency_us;        /* 0: not said */
	double copies_gbps, launch_us, call_us;         /* copies 0: not said */
	double attention_tflops, attention_grad_tflops; /* 0: not said */
	double matmul_share, memory_share, copies_beside;
	int64_t sockets;
	double host_memory_gbps, host_gflops;
	double host_update_gbps, host_pin_gbps; /* 0: not said */
	double disk_read_gbps, disk_write_gbps; /* 0: not said */
};

/* Reads a description. ERR_INPUT "FILE:LINE: ..." (an unknown key, an invalid value, or all missing keys at
 * once), ERR_NOMEM, ERR_IO. */
int machine_read(struct machine **machine, const char *path);
void machine_free(struct machine *machine);

/* Writes a file that machine_read reads as the same machine, without default values and with `source` in
 * front. ERR_INPUT (no such directory), ERR_IO, ERR_NOMEM. */
int machine_write(const struct machine *machine, const char *source, const char *path);

/* Ranks on one such machine in a world of world_size: one for each GPU, or one if the host computes.
 * world_size CONFIG_AUTO: as many as the machine allows. */
int64_t machine_ranks_here(const struct machine *machine, int64_t world_size);

/* Fills a machine of one rank with this speed, without ranks and networks; the caller sets its name,
 * memories and GPUs. */
void machine_of_speed(struct machine *machine, const struct device_speed *speed);

/* The speed of each of `ranks` ranks on the machine: a GPU, and a share of the shared resources while all use
 * them. More ranks than the machine allows, or CONFIG_AUTO, mean as many as it allows. */
void machine_speed(struct device_speed *speed, const struct machine *machine, int64_t ranks);

#endif
