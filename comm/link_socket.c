/* Unix sockets as a transport between ranks that ferry started (local_job.h), one socket for each pair. */
#include "comm/transport.h"

#include "comm/local_job.h"

#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	FRAME_BYTES = 128 << 10,
	TURN_BYTES = 2 << 20, /* of one peer, before the next has its turn */
	BUFFER_BYTES = 4 << 20,
	TAGS_MIN = 32, /* links with flows from the start */
};

/* All lanes share a pair's socket, in frames. A rank that begins a receive grants the sender room for its
 * bytes. Nothing is sent without room, so bytes that arrive have a place, no message blocks another, and
 * nothing is stored between. */
enum frame_kind { FRAME_VALUES, FRAME_ROOM, FRAME_NOTE };
struct frame {
	int32_t kind, tag;
	int64_t bytes; /* that follow; of FRAME_ROOM: the room granted */
};

struct piece {
	enum link_way way;
	int peer; /* rank in the world */
	char *values;
	int64_t bytes, begun, done; /* begun: put into frames so far */
};

struct lane {
	int tag, first, stride;
	struct piece *pieces;
	int piece_cap, piece_count, left;
	struct pollfd *polls; /* [size], as of the last question */
	struct lane *next;
};

/* The state between a lane and a peer; may be in use before the lane is opened here. */
struct flow {
	int64_t room;    /* room at the peer that is not used yet */
	int64_t offered; /* room here that is not yet granted to the peer */
	int64_t dropped; /* bytes that will come but are no longer wanted */
};

/* One direction of a socket: the frame under way. */
struct side {
	struct frame frame;
	int64_t head_done, done; /* bytes of the frame's head, and of its values */
	struct piece *piece;     /* the piece of the values; NULL: none */
	char *values;
	int is_busy;
};

struct peer {
	int fd, is_gone, is_deaf; /* gone: nothing can come; deaf: nothing can be sent */
	struct side in, out;
	char *rest; /* [FRAME_BYTES]: the rest of a frame with a piece that was given up */
	struct transport_note note;
	struct flow *flows; /* [tag_cap] */
	int note_is_due;
};

static struct {
	int rank, size, tag_cap;
	struct peer *peers; /* [size] */
	struct lane *lanes; /* by tag */
	struct transport_note heard, told;
	char *waste; /* [FRAME_BYTES] */
} net;

/* ---- start and end ---- */

static int flows_reserve(int tag)
{
	int cap = net.tag_cap ? net.tag_cap : TAGS_MIN;

	while (cap <= tag)
		cap *= 2;
	for (int r = 0; r < net.size && cap > net.tag_cap; r++) {
		struct flow *flows = mem_resize(net.peers[r].flows, (size_t)cap, sizeof(*flows));

		if (!flows)
			return ERR_NOMEM;
		memset(flows + net.tag_cap, 0, (size_t)(cap - net.tag_cap) * sizeof(*flows));
		net.peers[r].flows = flows;
	}
	net.tag_cap = cap;
	return 0;
}

static int socket_start(struct link_place *place, const struct launch *launch)
{
	int *fds = mem_alloc((size_t)launch->size, sizeof(*fds)), rc = fds ? 0 : ERR_NOMEM;
	int bytes = BUFFER_BYTES;

	net.rank = launch->rank;
	net.size = launch->size;
	net.peers = mem_alloc((size_t)net.size, sizeof(*net.peers));
	net.waste = mem_alloc(1, FRAME_BYTES);
	if (!rc && (!net.peers || !net.waste))
		rc = ERR_NOMEM;
	if (!rc)
		rc = local_job_join(fds, launch);
	if (!rc)
		rc = flows_reserve(0);
	for (int r = 0; r < net.size && !rc; r++) {
		net.peers[r].fd = fds[r];
		net.peers[r].rest = mem_alloc(1, FRAME_BYTES);
		rc = net.peers[r].rest ? 0 : ERR_NOMEM;
		if (r != net.rank) /* as much as the system allows */
			(void)setsockopt(fds[r], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	}
	mem_free(fds);
	*place = (struct link_place){launch->rank, launch->size, launch->rank, launch->size, launch->key};
	return rc;
}

/* All exchanges are done, so the receivers have all bytes. */
static void socket_stop(void)
{
	for (int r = 0; r < net.size; r++) {
		if (r != net.rank)
			close(net.peers[r].fd);
		mem_free(net.peers[r].rest);
		mem_free(net.peers[r].flows);
	}
	mem_free(net.peers);
	mem_free(net.waste);
	net.peers = NULL;
	net.size = net.tag_cap = 0;
}

/* ---- sending ---- */

static void side_begin(struct side *s, struct frame frame, struct piece *piece, char *values)
{
	*s = (struct side){.frame = frame, .piece = piece, .values = values, .is_busy = 1};
}

/* The lane's first piece to or from the peer with bytes that are in no frame yet. */
static struct piece *piece_find(const struct lane *lane, enum link_way way, int peer)
{
	for (int i = 0; i < lane->piece_count && lane->left; i++)
		if (lane->pieces[i].peer == peer && lane->pieces[i].way == way &&
		        lane->pieces[i].begun < lane->pieces[i].bytes)
			return &lane->pieces[i];
	return NULL;
}

/* Begins the next frame: room first, because the other side waits for it. */
static int frame_next(struct peer *p)
{
	for (int tag = 0; tag < net.tag_cap; tag++)
		if (p->flows[tag].offered) {
			side_begin(
			        &p->out, (struct frame){FRAME_ROOM, tag, p->flows[tag].offered}, NULL, NULL);
			p->flows[tag].offered = 0;
			return 1;
		}
	if (p->note_is_due) {
		side_begin(&p->out, (struct frame){FRAME_NOTE, 0, sizeof(net.told)}, NULL, (char *)&net.told);
		p->note_is_due = 0;
		return 1;
	}
	for (struct lane *l = net.lanes; l; l = l->next) {
		struct flow *f = &p->flows[l->tag];
		struct piece *piece = f->room ? piece_find(l, LINK_SEND, (int)(p - net.peers)) : NULL;
		int64_t bytes = piece ? piece->bytes - piece->begun : 0;

		if (!piece)
			continue;
		bytes = bytes < f->room ? bytes : f->room;
		bytes = bytes < FRAME_BYTES ? bytes : FRAME_BYTES;
		side_begin(&p->out, (struct frame){FRAME_VALUES, l->tag, bytes}, piece,
		        piece->values + piece->begun);
		piece->begun += bytes;
		f->room -= bytes;
		return 1;
	}
	return 0;
}

static struct lane *lane_find(int tag)
{
	struct lane *l = net.lanes;

	while (l && l->tag != tag)
		l = l->next;
	return l;
}

static void piece_add(struct piece *piece, int tag, int64_t bytes)
{
	struct lane *lane = piece ? lane_find(tag) : NULL;

	if (!lane)
		return;
	piece->done += bytes;
	lane->left -= piece->done == piece->bytes;
}

static int peer_error(struct peer *p)
{
	if (errno == EAGAIN || errno == EINTR)
		return 0;
	if (errno == EPIPE || errno == ECONNRESET) { /* what it sent before can still be read */
		p->is_deaf = 1;
		return 0;
	}
	return err_set(ERR_DEVICE, "rank %d of %d: socket to rank %d: %s", net.rank, net.size,
	        (int)(p - net.peers), strerror(errno));
}

static int64_t values_of(const struct frame *f)
{
	return f->kind == FRAME_ROOM ? 0 : f->bytes;
}

static int peer_send(struct peer *p)
{
	struct side *s = &p->out;

	for (int64_t turn = 0; turn < TURN_BYTES && !p->is_deaf && (s->is_busy || frame_next(p));) {
		struct iovec parts[] = {
		        {(char *)&s->frame + s->head_done, sizeof(s->frame) - (size_t)s->head_done},
		        {s->values + s->done, (size_t)(values_of(&s->frame) - s->done)}};
		struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1 + (values_of(&s->frame) > 0)};
		int64_t sent = sendmsg(p->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT), head;

		if (sent < 0)
			return peer_error(p);
		turn += sent;
		head = (int64_t)parts[0].iov_len < sent ? (int64_t)parts[0].iov_len : sent;
		s->head_done += head;
		s->done += sent - head;
		if (s->head_done < (int64_t)sizeof(s->frame) || s->done < values_of(&s->frame))
			return 0; /* the socket is full */
		piece_add(s->piece, s->frame.tag, s->frame.bytes);
		s->is_busy = 0;
	}
	if (!s->is_busy && !p->is_deaf)
		(void)frame_next(p); /* so a rest ends when the socket has space for it */
	return 0;
}

/* ---- receiving ---- */

/* Finds the place for arriving values. If their receive was given up, they are dropped. */
static int values_place(struct peer *p, struct frame *f)
{
	struct lane *lane = lane_find(f->tag);
	struct piece *piece = lane ? piece_find(lane, LINK_RECEIVE, (int)(p - net.peers)) : NULL;
	struct flow *flow = &p->flows[f->tag];

	if (flow->dropped >= f->bytes) {
		flow->dropped -= f->bytes;
		return 0;
	}
	if (!piece || f->bytes > piece->bytes - piece->begun)
		return ERR_DEVICE;
	p->in.piece = piece;
	p->in.values = piece->values + piece->begun;
	piece->begun += f->bytes;
	return 0;
}

/* Reads a frame's head, which is complete. */
static int frame_read(struct peer *p)
{
	struct frame *f = &p->in.frame;
	int is_wrong = f->tag < 0 || f->bytes < 0, rc;

	if (!is_wrong && f->kind != FRAME_NOTE) {
		rc = f->tag < net.tag_cap ? 0 : flows_reserve(f->tag);
		if (rc)
			return rc;
	}
	if (!is_wrong && f->kind == FRAME_ROOM)
		p->flows[f->tag].room += f->bytes;
	else if (!is_wrong && f->kind == FRAME_VALUES)
		is_wrong = f->bytes > FRAME_BYTES || values_place(p, f);
	else if (!is_wrong && f->kind == FRAME_NOTE && f->bytes == sizeof(p->note))
		p->in.values = (char *)&p->note;
	else
		is_wrong = 1;
	p->is_gone |= is_wrong; /* later bytes cannot be understood */
	if (is_wrong)
		return err_set(ERR_DEVICE, "rank %d of %d: received an invalid message from rank %d",
		        net.rank, net.size, (int)(p - net.peers));
	return 0;
}

static void frame_end(struct peer *p)
{
	struct side *s = &p->in;

	piece_add(s->piece, s->frame.tag, s->frame.bytes);
	if (s->frame.kind == FRAME_NOTE && !net.heard.err.code)
		net.heard = p->note;
	*s = (struct side){0};
}

static int peer_receive(struct peer *p)
{
	struct side *s = &p->in;
	int rc = 0;

	for (int64_t turn = 0; turn < TURN_BYTES && !p->is_gone && !rc;) {
		int is_head = s->head_done < (int64_t)sizeof(s->frame);
		char *to = is_head     ? (char *)&s->frame + s->head_done
		           : s->values ? s->values + s->done
		                       : net.waste;
		int64_t left = is_head ? (int64_t)sizeof(s->frame) - s->head_done : s->frame.bytes - s->done;
		int64_t came = recv(p->fd, to, (size_t)left, MSG_DONTWAIT);

		if (came < 0 && errno == ECONNRESET)
			came = 0;
		if (came < 0)
			return peer_error(p);
		p->is_gone |= !came; /* its socket stays open, because lanes may wait on it */
		turn += came;
		*(is_head ? &s->head_done : &s->done) += came;
		if (is_head && came == left)
			rc = frame_read(p);
		if (!rc && s->head_done == (int64_t)sizeof(s->frame) && s->done == values_of(&s->frame))
			frame_end(p);
	}
	return rc;
}

static int peers_move(void)
{
	int rc = 0;

	for (int r = 0; r < net.size && !rc; r++)
		if (r != net.rank && !net.peers[r].is_gone) {
			rc = peer_receive(&net.peers[r]);
			if (!rc)
				rc = peer_send(&net.peers[r]);
		}
	return rc;
}

/* ---- lanes ---- */

static int pieces_reserve(struct lane *lane, int count)
{
	struct piece *pieces;

	if (count <= lane->piece_cap)
		return 0;
	pieces = mem_resize(lane->pieces, (size_t)count, sizeof(*pieces));
	if (!pieces)
		return ERR_NOMEM;
	lane->pieces = pieces;
	lane->piece_cap = count;
	return 0;
}

static int socket_open(struct lane **out, int tag, int first, int stride)
{
	struct lane *lane = mem_alloc(1, sizeof(*lane)), **last = &net.lanes;
	int rc = lane ? 0 : ERR_NOMEM;

	if (rc)
		return rc;
	*lane = (struct lane){.tag = tag, .first = first, .stride = stride};
	lane->polls = mem_alloc((size_t)net.size, sizeof(*lane->polls));
	rc = lane->polls ? pieces_reserve(lane, net.size) : ERR_NOMEM; /* so last reports need no memory */
	if (!rc && tag >= net.tag_cap)
		rc = flows_reserve(tag);
	if (rc) {
		mem_free(lane->polls);
		mem_free(lane->pieces);
		mem_free(lane);
		return rc;
	}
	while (*last)
		last = &(*last)->next;
	*last = lane;
	*out = lane;
	return 0;
}

static void socket_give_up(struct lane *lane);

static void socket_close(struct lane *lane)
{
	struct lane **at = &net.lanes;

	socket_give_up(lane);
	while (*at != lane)
		at = &(*at)->next;
	*at = lane->next;
	mem_free(lane->polls);
	mem_free(lane->pieces);
	mem_free(lane);
}

/* ---- exchanges ---- */

static int socket_begin(struct lane *lane, const struct link_part *parts, int part_count)
{
	int rc = pieces_reserve(lane, part_count);

	lane->piece_count = lane->left = 0;
	for (int i = 0; i < part_count && !rc; i++) {
		int peer = lane->first + parts[i].peer * lane->stride;

		if (!parts[i].bytes)
			continue;
		lane->pieces[lane->piece_count++] =
		        (struct piece){parts[i].way, peer, parts[i].values, parts[i].bytes, 0, 0};
		if (parts[i].way == LINK_RECEIVE)
			net.peers[peer].flows[lane->tag].offered += parts[i].bytes;
	}
	lane->left = lane->piece_count;
	return rc;
}

static int socket_ask(struct lane *lane)
{
	int rc = peers_move();

	for (int r = 0; r < net.size; r++)
		lane->polls[r] = (struct pollfd){
		        .fd = r == net.rank || net.peers[r].is_gone ? -1 : net.peers[r].fd,
		        .events = (short)(POLLIN |
		                          (net.peers[r].out.is_busy && !net.peers[r].is_deaf ? POLLOUT : 0))};
	return rc ? rc : !lane->left;
}

static int socket_peer(struct lane *lane, int only_gone)
{
	for (int way = LINK_RECEIVE; way >= LINK_SEND; way--)
		for (int i = 0; i < lane->piece_count && lane->left; i++) {
			const struct piece *piece = &lane->pieces[i];

			if ((int)piece->way == way && piece->done < piece->bytes &&
			        (!only_gone || net.peers[piece->peer].is_gone))
				return piece->peer;
		}
	return -1;
}

/* Lets a frame that has begun go on without its piece: from a copy, or to waste. */
static void side_leave(struct side *s, const struct piece *piece, char *values, int is_sent)
{
	if (!s->is_busy && !s->head_done)
		return;
	if (s->piece != piece || !piece)
		return;
	if (is_sent)
		memcpy(values + s->done, s->values + s->done, (size_t)(s->frame.bytes - s->done));
	s->values = values;
	s->piece = NULL;
}

static void socket_give_up(struct lane *lane)
{
	for (int i = 0; i < lane->piece_count; i++) {
		struct piece *piece = &lane->pieces[i];
		struct peer *p = &net.peers[piece->peer];
		struct flow *f = &p->flows[lane->tag];
		int64_t left = piece->bytes - piece->begun, untold = left < f->offered ? left : f->offered;

		if (piece->done == piece->bytes)
			continue;
		if (piece->way == LINK_SEND) {
			side_leave(&p->out, piece, p->rest, 1);
			continue;
		}
		side_leave(&p->in, piece, NULL, 0);
		f->offered -= untold;
		f->dropped += left - untold;
	}
	lane->piece_count = lane->left = 0;
}

static void socket_rest(struct lane *lane, int64_t ns)
{
	(void)ppoll(lane->polls, (nfds_t)net.size, &(struct timespec){.tv_nsec = ns}, NULL);
}

/* ---- notes ---- */

static int socket_hear(struct transport_note *note)
{
	int is_there = net.heard.err.code != 0;

	*note = net.heard;
	net.heard.err.code = 0;
	return is_there;
}

static void socket_tell(const struct transport_note *note)
{
	net.told = *note;
	for (int r = 0; r < net.size; r++)
		net.peers[r].note_is_due = r != net.rank;
	(void)peers_move();
}

const struct transport transport_socket = {socket_start, socket_stop, socket_open, socket_close, socket_begin,
        socket_ask, socket_peer, socket_give_up, socket_rest, socket_tell, socket_hear};
