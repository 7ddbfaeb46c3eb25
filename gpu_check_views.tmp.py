import sys, time, torch
sys.path.insert(0, "src")
from splitpu.views import Views
from splitpu.config.schema import ViewsConfig
from splitpu.data.preprocess import Preprocessing
from splitpu.networks import build_network, network_names
p = Preprocessing("images", (32,32,3), 0., 1/255, (.5,)*3, (.2,)*3)
v = Views(p, ViewsConfig(cutout=.5), "cuda"); c = Views(p, ViewsConfig(cutout=.5), "cpu")
raw = torch.randint(0,256,(512,32,32,3),dtype=torch.uint8); graw = raw.cuda()
print("plain gpu==cpu", (v.plain(graw).cpu()-c.plain(raw)).abs().max())
g = torch.Generator("cuda").manual_seed(0)
torch.cuda.set_sync_debug_mode("error")
for f in (v.weak, v.strong):
    f(graw, g)
torch.cuda.set_sync_debug_mode("default")
for name, f in (("weak", v.weak), ("strong", v.strong)):
    s = torch.cuda.Stream()
    with torch.cuda.stream(s): f(graw, torch.Generator("cuda"))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(); gg = torch.Generator("cuda").manual_seed(5); graph.register_generator_state(gg)
    with torch.cuda.graph(graph): out = f(graw, gg)
    graph.replay(); torch.cuda.synchronize(); a = time.perf_counter()
    for _ in range(200): graph.replay()
    torch.cuda.synchronize(); print(name, "captured us", (time.perf_counter()-a)/200*1e6, out.is_contiguous(memory_format=torch.channels_last))
for n in network_names():
    net = build_network(n, (32,32,3)).cuda().to(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=torch.bfloat16): o = net(v.weak(graw, g))
    o.logit.float().mean().backward(); print(n, o.logit.dtype, o.low.dtype, o.low.is_contiguous(memory_format=torch.channels_last) if o.low.ndim==4 else "")
import torchvision
a = torchvision.models.resnet18(); b = build_network("resnet18", (224,224,3))
sa = {k: x.shape for k, x in a.state_dict().items() if not k.startswith("fc")}; sb = {k: x.shape for k, x in b.state_dict().items() if not k.startswith("fc")}
print("torchvision keys equal", sa == sb, list(sa) == list(sb))
b.load_state_dict({k: x for k, x in a.state_dict().items() if not k.startswith("fc")}, strict=False); a.eval(); b.eval(); a.fc = torch.nn.Identity()
x = torch.randn(2,3,224,224); print("features equal", (a(x)-b(x).high).abs().max())
