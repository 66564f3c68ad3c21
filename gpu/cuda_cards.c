/* The table of cards. */
#include "gpu/cuda_cards.h"

#include <stddef.h>
#include <string.h>

const struct cuda_card cuda_cards[] = {
        {"NVIDIA H100 80GB HBM3", "h100-vm", 692.3, 330, 205, 3350, 53},
        {"NVIDIA H200", "h200", 692.3, 330, 205, 4800, 53},
        {"NVIDIA GH200 480GB", "gh200", 692.3, 330, 205, 4000, 380},
        {"NVIDIA A100-SXM4-80GB", "a100-80-x8", 259, 190, 110, 2039, 25},
        {"NVIDIA L40S", "l40s", 235.3, 200, 150, 864, 25},
        {"NVIDIA RTX A6000", "workstation-rtx-a6000", 116.1, 93, 70, 768, 25},
        {"NVIDIA GeForce RTX 5090", "pc-rtx-5090", 196.9, 184, 134, 1792, 53},
        {"NVIDIA GeForce RTX 4090", "pc-rtx-4090", 155.3, 145, 106, 1008, 25},
        {"NVIDIA GeForce RTX 4080", "pc-rtx-4080", 91.6, 85, 62, 717, 25},
        {"NVIDIA GeForce RTX 4070", "pc-rtx-4070", 54.8, 51, 37, 504, 25},
        {"NVIDIA GeForce RTX 3090", "pc-rtx-3090", 66.7, 62, 45, 936, 25},
        {NULL, NULL, 0, 0, 0, 0, 0},
};

const struct cuda_card *cuda_card_of(const char *name)
{
	for (const struct cuda_card *c = cuda_cards; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	return NULL;
}
